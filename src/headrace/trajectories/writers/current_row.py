"""The row that is written next, of which some columns are held from one call to the next: what it begins with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy import ndarray
from numpy.typing import NDArray

from headrace.store.columns import WholeArrays
from headrace.trajectories.columns.leaf_reader import checked
from headrace.trajectories.columns.step_columns import StepColumns


class CurrentRow:
    """Copies of what was seen last, in the row that is written next: the caller may change its arrays after the call.

    Args:
        columns: of the steps.
        lanes: the axis that every array has in front; None for none.
        staged: arrays that the writer of rows has for some columns: what is put there need not be copied once more.

    Attributes:
        names: of the columns that are kept, what was seen last.
        row: column to value: those that are kept, and whatever else a call put in for the step that it takes. With
            lanes these are arrays that every call writes into, some of them the writer's.
    """

    def __init__(self, columns: StepColumns, lanes: int | None, staged: Mapping[str, NDArray[Any]]) -> None:
        self._columns = columns
        self._lanes = lanes
        self._staged = staged
        self._following = columns.observation.names
        self.names: tuple[str, ...] = ()
        self.row: dict[str, Any] = {}
        self._acting: WholeArrays | None = None
        if lanes is not None:
            self.row = {name: self._new(name) for name in columns.acting}
            self._acting = WholeArrays(
                (place, self.row[name], check.check)
                # The names end the pairs: the checks of observations follow.
                for place, (name, check) in enumerate(zip(columns.acting, columns.checks, strict=False))
            )

    @property
    def kept(self) -> dict[str, Any]:
        """The columns that are kept."""
        return {name: self.row[name] for name in self.names}

    def put(self, values: Mapping[str, Any], rows: NDArray[np.int64] | None) -> None:
        """Keep these from now on; only in some lanes if `rows` says which. The first call says which are kept."""
        if not self.names:
            self.names = tuple(values)
            self.row.update({name: self._new(name) for name in values})
        if rows is None:
            self.keep(values)
            return
        for name, value in values.items():
            self.row[name][rows] = value

    def read(self, values: Sequence[Any]) -> dict[str, Any]:
        """Put what a call brings into the row, but for what followed: that is returned, to be kept afterwards.

        Args:
            values: as `StepColumns.leaves` gives them.

        Raises:
            SpecError: with the path of what does not fit; what is kept did not change, other columns may have.
        """
        columns, acting = self._columns, len(self._columns.acting)
        if self._acting is None:
            values = checked(columns.checks, values)
            # The names end the pairs: they are as many as the values by construction.
            self.row.update(zip(columns.acting, values))  # noqa: B905
            return dict(zip(self._following, values[acting:]))  # noqa: B905
        # Checked and copied at once, which takes hardly longer than looking.
        self._acting.put(values)
        return dict(zip(self._following, checked(columns.observation.checks, values[acting:])))  # noqa: B905

    def keep(self, values: Mapping[str, Any]) -> None:
        """Keep these from now on."""
        row = self.row
        for name, value in values.items():
            into = row[name]
            if type(into) is ndarray and into.ndim:
                into[...] = value
            else:
                row[name] = value[()] if type(value) is ndarray else value

    def _new(self, name: str) -> NDArray[Any]:
        if name in self._staged:
            return self._staged[name]
        spec = self._columns.specs[name]
        leading = () if self._lanes is None else (self._lanes,)
        return np.zeros((*leading, *spec.shape), spec.dtype)
