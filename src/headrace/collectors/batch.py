"""A batch of a collector: columns `[N, T, ...]`, N environments and T steps."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import optree

from headrace.spec import Signature
from headrace.trees import at_path

Arrays = dict[str, np.ndarray[Any, Any]]


class Batch(Mapping[str, Any]):
    """A read-only mapping of columns to trees of arrays `[N, T, ...]`.

    `observation, action, reward, terminated, truncated, next_observation, episode_id, t, policy_version, mask`, and
    what the policy adds. Columns are items and attributes; `batch["observation/camera"]` reads one leaf of a tree.

    A pytree for optree, and for JAX in a program that uses it: `jax.tree.map`, `jit` and `device_put` take it whole.

    Args:
        trees: column to its tree of arrays, all with the same leading axes.
        worker_idx: which worker collected it; None where that has no one answer.

    >>> batch = Batch({"reward": np.ones((2, 3), np.float32), "mask": np.ones((2, 3), bool)})
    >>> batch.shape, batch.frames, batch.flatten().shape
    ((2, 3), 6, (6,))
    """

    # Rules: collectors CB1 to CB4

    def __init__(self, trees: Mapping[str, Any], worker_idx: int | None = None) -> None:
        self._trees = dict(trees)
        self.worker_idx = worker_idx
        if not _JAX.is_told and "jax" in sys.modules:
            _JAX.tell()

    def __getitem__(self, name: str) -> Any:
        return self._trees[name] if name in self._trees else at_path(self._trees, name)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_trees"][name]
        except KeyError:
            raise AttributeError(f"Batch has no column {name!r}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._trees)

    def __len__(self) -> int:
        return len(self._trees)

    @property
    def shape(self) -> tuple[int, ...]:
        """(N, T); (frames,) of a flat batch."""
        return tuple(self._trees["mask"].shape)

    @property
    def frames(self) -> int:
        """How many rows are real transitions."""
        return int(np.count_nonzero(self._trees["mask"]))

    def flatten(self) -> Batch:
        """A batch of `[frames, ...]`, row by row; masked rows are left out."""
        mask = self._trees["mask"]
        return Batch(optree.tree_map(lambda leaf: leaf[mask], self._trees), self.worker_idx)  # type: ignore[arg-type]

    def numpy(self) -> dict[str, Any]:
        """Plain nested dicts of NumPy arrays; no copy."""
        return dict(self._trees)

    def torch(self) -> dict[str, Any]:
        """Plain nested dicts of torch tensors over the same memory."""
        import torch

        return optree.tree_map(torch.from_numpy, self._trees)  # type: ignore[arg-type,return-value]

    def jax(self) -> dict[str, Any]:
        """Plain nested dicts of JAX arrays."""
        import jax

        return optree.tree_map(jax.numpy.asarray, self._trees)  # type: ignore[arg-type,return-value]

    def __repr__(self) -> str:
        versions = self._trees.get("policy_version")
        told = "" if versions is None else f", policy versions {versions.min()} to {versions.max()}"
        return f"<Batch {list(self.shape)} of {', '.join(self._trees)}{told}>"


def _flatten(batch: Batch) -> tuple[tuple[Any, ...], tuple[tuple[str, ...], int | None]]:
    names = tuple(batch)
    return tuple(batch[name] for name in names), (names, batch.worker_idx)


def _unflatten(about: tuple[tuple[str, ...], int | None], trees: tuple[Any, ...]) -> Batch:
    names, worker_idx = about
    return Batch(dict(zip(names, trees, strict=True)), worker_idx)


class _Jax:
    """Registers with a JAX that is loaded already: importing it takes a second, and not every program has one."""

    def __init__(self) -> None:
        self.is_told = False
        self._lock = threading.Lock()

    def tell(self) -> None:
        register = getattr(getattr(sys.modules["jax"], "tree_util", None), "register_pytree_node", None)
        with self._lock:
            # There is none while another thread is importing JAX.
            if register is not None and not self.is_told:
                register(Batch, _flatten, _unflatten)
                self.is_told = True


_JAX = _Jax()

optree.register_pytree_node(Batch, _flatten, _unflatten, namespace=optree.registry.__GLOBAL_NAMESPACE)  # type: ignore[arg-type]


def as_trees(signature: Signature, columns: Arrays) -> dict[str, Any]:
    """Columns by path as one tree for each top-level name."""
    tree = signature.unflatten(columns)
    return dict(tree)
