"""Steps of a rollout that the state of a collector holds, and a rollout that goes on after them."""

# Rules: collectors CQ1, CQ3

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.collectors.batches.batch_maker import NOTHING, BatchArrays
from headrace.collectors.batches.block_reader import BlockReader
from headrace.collectors.batches.copy_threads import ONE_THREAD, CopyThreads
from headrace.store.gather import Pool


@dataclass
class PartialRollout:
    """The first t steps of a rollout of n lanes; the fields are those of `BatchArrays`.

    Attributes:
        columns: `[n, t, ...]` of each column.
        following: `[n, t, ...]` of each observed column, the observations after each step.
        versions: int64[n, t].
        starts, masked: bool[t, n].
    """

    columns: dict[str, NDArray[Any]]
    following: dict[str, NDArray[Any]]
    versions: NDArray[np.int64]
    starts: NDArray[np.bool_]
    masked: NDArray[np.bool_]

    @classmethod
    def of(cls, arrays: BatchArrays, lanes: slice) -> PartialRollout:
        """Returns a copy of some lanes of a batch under construction, with zeros where nothing was taken."""
        columns, following = (
            {name: np.array(column[lanes]) for name, column in each.items()}
            for each in (arrays.columns, arrays.following)
        )
        starts, masked = np.array(arrays.starts[:, lanes]), np.array(arrays.masked[:, lanes])
        for column in (*columns.values(), *following.values()):
            column[masked.T] = 0
        return cls(columns, following, np.array(arrays.versions[lanes]), starts, masked)

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> PartialRollout:
        """Returns the steps of a state."""
        return cls(**state)

    def state_dict(self) -> dict[str, Any]:
        """Returns the fields."""
        return asdict(self)

    @property
    def steps(self) -> int:
        """The number of steps, t."""
        return len(self.masked)

    def copy_into(self, arrays: BatchArrays, first: int) -> None:
        """Copies the steps into the first steps of a batch, into its lanes from `first` on."""
        steps, lanes = slice(0, self.steps), slice(first, first + len(self.versions))
        for name, column in self.columns.items():
            arrays.columns[name][lanes, steps] = column
        for name, column in self.following.items():
            arrays.following[name][lanes, steps] = column
        arrays.versions[lanes, steps] = self.versions
        arrays.starts[steps, lanes] = self.starts
        arrays.masked[steps, lanes] = self.masked


@dataclass
class Continuation:
    """A rollout of n lanes that may begin with steps of a loaded state.

    Attributes:
        loaded: these steps; None: there are none.
        continued: lanes whose first step since the state was loaded continues an episode of the state.
    """

    loaded: PartialRollout | None = None
    continued: Sequence[int] = ()

    @property
    def loaded_steps(self) -> int:
        """The number of steps of the state."""
        return 0 if self.loaded is None else self.loaded.steps

    def copy(
        self, rollout: BlockReader, arrays: BatchArrays, first: int, threads: CopyThreads = ONE_THREAD
    ) -> None:
        """Copies the whole rollout into the lanes of a batch from `first` on.

        Args:
            rollout: its steps after those of the state.
            arrays: of the batch.
            first: the first lane.
            threads: share the copy.
        """
        if self.loaded is not None:
            self.loaded.copy_into(arrays, first)
        if rollout.steps:
            begin = self.loaded_steps
            rollout.copy(arrays, first, threads, begin)
            arrays.starts[begin, first + np.array(self.continued, np.intp)] = False

    def partial(self, rollout: BlockReader, lanes: int) -> PartialRollout | None:
        """Returns a copy of the steps so far; None if there are none.

        Args:
            rollout: those after the steps of the state.
            lanes: n.
        """
        steps = rollout.steps + self.loaded_steps
        if not steps:
            return None
        arrays = BatchArrays(rollout.signature, rollout.observed, lanes, steps, Pool(), NOTHING)
        self.copy(rollout, arrays, 0)
        return PartialRollout.of(arrays, slice(None))
