"""From a raw batch to what the user is given: pieces of trajectories, the user's function, the storing device."""

# Rules: collectors CR9, CR10

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.collectors.batches.batch import Batch
from headrace.collectors.batches.splitting import split_trajectories
from headrace.collectors.devices import Storing
from headrace.errors import SpecError
from headrace.trees import compile_tree, leaves

Postproc = Callable[[Batch], Any]


class HandOut:
    """Splits batches into trajectories, calls the user's `postproc`, moves the result; each only if it is asked for.

    Args:
        split_trajs: whether to split.
        postproc: called on each batch; None: none.
        storing: puts the result on the storing device.
    """

    def __init__(self, split_trajs: bool, postproc: Postproc | None, storing: Storing) -> None:
        self._split = split_trajs
        self._postproc = postproc
        self._storing = storing

    @property
    def calls_user(self) -> bool:
        """Whether a function of the user is called."""
        return self._postproc is not None

    def __call__(self, batch: Batch) -> Any:
        """Returns what is handed out for a batch `[N, T, ...]`.

        Raises:
            TypeError: `postproc` returned None.
            Exception: raised by `postproc`.
        """
        worker_idx = batch.worker_idx or 0
        if self._split:
            batch = split_trajectories(batch)
        result = batch if self._postproc is None else _postprocessed(self._postproc, batch)
        return self._storing(result, worker_idx)


def to_be_stored(postproc: Postproc, batch: Batch) -> Batch:
    """Returns what `postproc` makes of a batch whose rows a replay stores.

    Raises:
        TypeError: `postproc` returned something else than a Batch.
        SpecError: the result has other columns, shapes or dtypes; the message has the path.
        Exception: raised by `postproc`.
    """
    result = _postprocessed(postproc, batch)
    if not isinstance(result, Batch):
        raise TypeError(
            f"postproc: with replay_buffer expected it to return a Batch, got {type(result).__name__}"
        )
    expected, got = _specs(batch), _specs(result)
    for path in sorted({*expected, *got}):
        if expected.get(path) != got.get(path):
            raise SpecError(
                f"postproc: {path}: expected {expected.get(path, 'no such column')}, got {got.get(path, 'none')}; with "
                "replay_buffer the result must keep the shape and the columns of the batch"
            )
    return result


def _postprocessed(postproc: Postproc, batch: Batch) -> Any:
    result = postproc(batch)
    if result is None:
        raise TypeError("postproc: expected it to return the batch, got None; is a `return` missing?")
    return result


def _specs(batch: Batch) -> dict[str, str]:
    """Returns dtype and shape of each array by its path."""
    node = compile_tree(dict(batch), lambda value: hasattr(value, "dtype"))
    return {leaf.path: f"{leaf.value.dtype}{list(leaf.value.shape)}" for leaf in leaves(node)}
