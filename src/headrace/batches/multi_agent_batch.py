"""The batches of several policies, counted in steps of their environments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.batches.pytree import PytreeNode
from headrace.batches.sample_batch import SampleBatch
from headrace.checks import check_count, check_kind, check_mapping


class MultiAgentBatch:
    """The `SampleBatch` of each policy, and the number of steps that their environments made together.

    `batch[policy_id]` is one of them. `len(batch)` is the number of environment steps. A pytree like `SampleBatch`.

    Args:
        policy_batches: policy id to its rows.
        env_steps: number of environment steps; in each, several agents may have a row, or none.

    Raises:
        TypeError: `policy_batches` is not a dict, or a batch is not a `SampleBatch`.
        ValueError: env_steps < 0.

    >>> one = SampleBatch({"t": [0, 1], "reward": [1.0, 2.0]})
    >>> other = SampleBatch({"t": [1], "reward": [5.0]})
    >>> batch = MultiAgentBatch({"one": one, "other": other}, env_steps=2)
    >>> batch.env_steps(), batch.agent_steps(), batch.timeslices(1)[1]["other"]["reward"]
    (2, 3, array([5.]))
    """

    # Rules: views-rollouts B9

    def __init__(self, policy_batches: Mapping[str, SampleBatch], env_steps: int) -> None:
        check_mapping("policy_batches", policy_batches, "SampleBatch")
        self.policy_batches = {
            policy_id: check_kind(str(policy_id), batch, SampleBatch)
            for policy_id, batch in policy_batches.items()
        }
        self._env_steps = check_count("env_steps", env_steps, 0)
        _NODE.tell_jax()

    @property
    def count(self) -> int:
        """Number of environment steps."""
        return self._env_steps

    def env_steps(self) -> int:
        """Returns the number of environment steps."""
        return self._env_steps

    def agent_steps(self) -> int:
        """Returns the number of rows of all policies."""
        return sum(batch.count for batch in self.policy_batches.values())

    def __len__(self) -> int:
        return self._env_steps

    def __getitem__(self, policy_id: str) -> SampleBatch:
        return self.policy_batches[policy_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self.policy_batches)

    def timeslices(self, env_steps: int) -> list[MultiAgentBatch]:
        """Returns batches of `env_steps` environment steps, the last one of fewer.

        Rows of one environment step stay together. A step is known by the columns `episode_id` and `env_t`, or by `t`
        where there is no `env_t`. Slices are in the order of these numbers, and have only policies with rows in them.

        Raises:
            ValueError: env_steps < 1; the batches have neither `env_t` nor `t`.
        """
        size = check_count("timeslices", env_steps, 1)
        filled = {policy_id: batch for policy_id, batch in self.policy_batches.items() if batch.count}
        if not filled:
            return []
        steps = _step_numbers(list(filled.values()))
        last = max(int(numbers.max()) for numbers in steps)
        slices = []
        for begin in range(0, last + 1, size):
            chosen = [(numbers >= begin) & (numbers < begin + size) for numbers in steps]
            parts = {
                policy_id: _chosen_rows(batch, rows)
                for (policy_id, batch), rows in zip(filled.items(), chosen, strict=True)
                if rows.any()
            }
            slices.append(MultiAgentBatch(parts, min(size, last + 1 - begin)))
        return slices

    @classmethod
    def concat(cls, batches: Iterable[MultiAgentBatch]) -> MultiAgentBatch:
        """Returns the rows of each policy, in order, and the sum of the environment steps.

        Raises:
            SpecError, ValueError: as `SampleBatch.concat`, for a policy whose batches do not fit each other.
        """
        every = [check_kind("concat", batch, MultiAgentBatch) for batch in batches]
        policy_ids = dict.fromkeys(policy_id for batch in every for policy_id in batch.policy_batches)
        joined = {
            policy_id: SampleBatch.concat(
                batch.policy_batches[policy_id] for batch in every if policy_id in batch.policy_batches
            )
            for policy_id in policy_ids
        }
        return cls(joined, sum(batch.count for batch in every))

    def copy(self) -> MultiAgentBatch:
        """Returns a deep copy."""
        return MultiAgentBatch(
            {name: batch.copy() for name, batch in self.policy_batches.items()}, self.count
        )

    def numpy(self) -> dict[str, dict[str, Any]]:
        """Plain dicts of NumPy arrays, by policy; no copy."""
        return {policy_id: batch.numpy() for policy_id, batch in self.policy_batches.items()}

    def torch(self) -> dict[str, dict[str, Any]]:
        """Plain dicts of torch tensors over the same memory, by policy."""
        return {policy_id: batch.torch() for policy_id, batch in self.policy_batches.items()}

    def jax(self) -> dict[str, dict[str, Any]]:
        """Plain dicts of JAX arrays, by policy."""
        return {policy_id: batch.jax() for policy_id, batch in self.policy_batches.items()}

    def __repr__(self) -> str:
        rows = ", ".join(
            f"{policy_id}: {batch.count} rows" for policy_id, batch in self.policy_batches.items()
        )
        return f"<MultiAgentBatch {self._env_steps} env steps; {rows}>"


def _step_numbers(batches: list[SampleBatch]) -> list[NDArray[np.int64]]:
    """Numbers the distinct environment steps of all batches, and returns those of the rows of each batch."""
    clock = next((name for name in ("env_t", SampleBatch.T) if all(name in batch for batch in batches)), None)
    if clock is None:
        raise ValueError("timeslices: expected a column env_t or t in the batch of every policy")
    names = [SampleBatch.EPS_ID] * all(SampleBatch.EPS_ID in batch for batch in batches) + [clock]
    plain = [batch.without_padding() for batch in batches]
    keys = np.concatenate([np.stack([np.asarray(batch[name]) for name in names], axis=1) for batch in plain])
    _, numbers = np.unique(keys, axis=0, return_inverse=True)
    ends = np.cumsum([batch.count for batch in batches])[:-1]
    return list(np.split(numbers.reshape(-1), ends))


def _chosen_rows(batch: SampleBatch, rows: NDArray[np.bool_]) -> SampleBatch:
    """Returns the rows that are True; one run of them is not copied."""
    edges = np.flatnonzero(np.diff(rows, prepend=False, append=False))
    runs = [batch[begin:end] for begin, end in edges.reshape(-1, 2).tolist()]
    return runs[0] if len(runs) == 1 else SampleBatch.concat(runs)


def _flatten(batch: MultiAgentBatch) -> tuple[tuple[Any, ...], Any]:
    return tuple(batch.policy_batches.values()), (tuple(batch.policy_batches), batch.count)


def _unflatten(about: Any, batches: tuple[Any, ...]) -> MultiAgentBatch:
    policy_ids, env_steps = about
    batch = object.__new__(MultiAgentBatch)
    batch.policy_batches = dict(zip(policy_ids, batches, strict=True))
    batch._env_steps = env_steps
    return batch


_NODE = PytreeNode(MultiAgentBatch, _flatten, _unflatten)
