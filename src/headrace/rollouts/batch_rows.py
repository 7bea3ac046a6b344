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
        runs: the first row of each run of one agent's episode, and the row after its last.
    """

    def __init__(self, signature: Signature, batch: SampleBatch) -> None:
        batch = batch.without_padding()
        extras = _extras_of(signature, batch)
        if missing := [name for name in _REQUIRED if name not in batch]:
            raise SpecError(f"batch: expected columns {', '.join(_REQUIRED)}; missing: {', '.join(missing)}")
        step = {name: batch[name] for name in _STEP} | extras
        self._signature = signature
        self._transitions = ReadyTransitions(signature, step, batch[SampleBatch.NEXT_OBS])
        self._observation = TreeColumns(signature.tree["observation"], "observation", None)
        self._episodes, self._t = _integers(batch, SampleBatch.EPS_ID), _integers(batch, SampleBatch.T)
        self._envs, self._agents = (
            _integers(batch, SampleBatch.ENV_ID),
            _integers(batch, SampleBatch.AGENT_INDEX),
        )
        starts = starts_of_runs(batch.count, [self._episodes, self._envs, self._agents])
        self.runs = list(pairwise([*starts.tolist(), batch.count]))

    def agent(self, row: int) -> tuple[int, int]:
        """Returns the numbers of the environment and of the agent; 0 where a batch does not tell."""
        return int(self._envs[row]), int(self._agents[row])

    def place(self, row: int) -> tuple[int, int]:
        """Returns the id of the episode, and the number of the step in it."""
        return int(self._episodes[row]), int(self._t[row])

    def observation(self, row: int) -> Any:
        """Returns the observation of a row."""
        return self._observation.row(self._transitions.columns, row)

    def step(self, row: int) -> tuple[Any, ...]:
        """Returns the arguments of `StepWriter.add`."""
        tree = self._signature.unflatten(self._transitions.row(row))
        following = self._observation.row(self._transitions.following, row)
        return (*(tree[name] for name in _STEP[1:]), following, tree.get("extras"))

    def goes_on(self, row: int) -> bool:
        """Whether the next row of the agent may belong to the same trajectory."""
        flags = (
            self._transitions.columns[name][row] for name in (SampleBatch.TERMINATEDS, SampleBatch.TRUNCATEDS)
        )
        return not any(flags)

    def is_continued(self, row: int) -> bool:
        """Whether the next row of the batch goes on with the trajectory."""
        return not self._transitions.ends[row]


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
