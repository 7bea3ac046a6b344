"""The rows of a batch as calls of step writers."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.batches.sample_batch import SampleBatch
from headrace.batches.sequences import starts_of_runs
from headrace.errors import SpecError
from headrace.spec import Signature
from headrace.trajectories.columns.step_columns import TreeColumns
from headrace.trajectories.writers.ready_transitions import ReadyTransitions

_STEP = (
    SampleBatch.OBS,
    SampleBatch.ACTIONS,
    SampleBatch.REWARDS,
    SampleBatch.TERMINATEDS,
    SampleBatch.TRUNCATEDS,
)
_REQUIRED = (*_STEP, SampleBatch.NEXT_OBS, SampleBatch.EPS_ID, SampleBatch.T)


class BatchRows:
    """Checked rows of a batch.

    Args:
        signature: of the replay.
        batch: with at least one row.

    Raises:
        SpecError: a column is missing or does not fit.

    Attributes:
        transitions: the rows; their `ends` are the flags.
        runs: the first row of each run of one trajectory, and the row after its last.
    """

    def __init__(self, signature: Signature, batch: SampleBatch) -> None:
        batch = batch.without_padding()
        extras = _extras_of(signature, batch)
        if missing := [name for name in _REQUIRED if name not in batch]:
            raise SpecError(f"batch: expected columns {', '.join(_REQUIRED)}; missing: {', '.join(missing)}")
        step = {name: batch[name] for name in _STEP} | extras
        self._signature = signature
        self.transitions = ReadyTransitions(signature, step, batch[SampleBatch.NEXT_OBS])
        self._observation = TreeColumns(signature.tree["observation"], "observation", None)
        self._episodes, self._t = _integers(batch, SampleBatch.EPS_ID), _integers(batch, SampleBatch.T)
        self._envs, self._agents = (
            _integers(batch, SampleBatch.ENV_ID),
            _integers(batch, SampleBatch.AGENT_INDEX),
        )
        begins = starts_of_runs(batch.count, [self._episodes, self._envs, self._agents])
        self._goes_on = ~self._ends(begins)
        goes_on = self._goes_on[:-1] & (np.diff(self._t) == 1)
        starts = np.union1d(begins, np.flatnonzero(~goes_on) + 1)
        self.runs = list(pairwise([*starts.tolist(), batch.count]))

    def _ends(self, begins: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Returns the last row of each trajectory, and leaves in the transitions those alone that have a flag.

        The row after the last one of an agent's episode may come in a later batch.

        Args:
            begins: the first rows of each agent's episodes.
        """
        columns, ends = self.transitions.columns, self.transitions.ends
        flags: NDArray[np.bool_] = columns[SampleBatch.TERMINATEDS] | columns[SampleBatch.TRUNCATEDS]
        lasts = np.append(begins[1:], len(ends)) - 1
        ends[lasts] = flags[lasts]
        self.transitions.ends = flags
        return ends

    def agent(self, row: int) -> tuple[int, int]:
        """Returns the numbers of the environment and of the agent; 0 where a batch does not tell."""
        return int(self._envs[row]), int(self._agents[row])

    def place(self, row: int) -> tuple[int, int]:
        """Returns the id of the episode, and the number of the step in it."""
        return int(self._episodes[row]), int(self._t[row])

    def observation(self, row: int) -> Any:
        """Returns the observation of a row."""
        return self._observation.row(self.transitions.columns, row)

    def step(self, row: int) -> tuple[Any, ...]:
        """Returns the arguments of `StepWriter.add`."""
        tree = self._signature.unflatten(self.transitions.row(row))
        following = self._observation.row(self.transitions.following, row)
        return (*(tree[name] for name in _STEP[1:]), following, tree.get("extras"))

    def goes_on(self, row: int) -> bool:
        """Whether the row with the next number of the same episode belongs to the same trajectory."""
        return bool(self._goes_on[row])


def _integers(batch: SampleBatch, name: str) -> NDArray[np.int64]:
    return np.asarray(batch[name] if name in batch else np.zeros(batch.count), np.int64)


def _extras_of(signature: Signature, batch: SampleBatch) -> dict[str, Any]:
    """Returns the columns that the signature has under `extras`, as one entry of a step."""
    tree = signature.tree.get("extras")
    if tree is None:
        return {}
    names = list(tree) if isinstance(tree, Mapping) else []
    if missing := [name for name in names if name not in batch]:
        raise SpecError(f"extras: expected columns {', '.join(names)}; missing: {', '.join(missing)}")
    return {"extras": {name: batch[name] for name in names}}
