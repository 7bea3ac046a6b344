"""Steps of a rollout that the state of a collector holds."""

# Rules: collectors CQ1, CQ3

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.collectors.batches.batch_maker import BatchArrays


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
