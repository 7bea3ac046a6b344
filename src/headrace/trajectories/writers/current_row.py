"""The row that is written next: some of its columns are kept from the call before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy import ndarray
from numpy.typing import NDArray

from headrace.store.columns import WholeArrays
from headrace.trajectories.columns.leaf_reader import checked
from headrace.trajectories.columns.step_columns import Columns, StepColumns


class CurrentRow:
    """Columns of the row that is written next: copies, because the caller may change arrays after a call.

    Args:
        columns: of the steps.
        lanes: the axis that every array has in front; None for none.
        staged: arrays of the writer of rows for some columns (`WriterLike.staged`): they are not copied once more.

    Attributes:
        values: column to value. With lanes these are arrays that every call writes into, some of them the writer's.
        kept_names: the columns that come with observations: a call brings them for the row after its own.
    """

    def __init__(self, columns: StepColumns, lanes: int | None, staged: Mapping[str, NDArray[Any]]) -> None:
        self._columns = columns
        self._leading = () if lanes is None else (lanes,)
        self._staged = staged
        self._following = columns.observation.names
        self.kept_names: tuple[str, ...] = ()
        self.values: Columns = {}
        self._acting: WholeArrays | None = None
        if lanes is not None:
            self.values = {name: self._new(name) for name in columns.acting}
            self._acting = WholeArrays(
                (place, self.values[name], check.check)
                # The names end the pairs: the checks of observations follow.
                for place, (name, check) in enumerate(zip(columns.acting, columns.checks, strict=False))
            )

    @property
    def kept(self) -> Columns:
        """The columns that come with observations."""
        return {name: self.values[name] for name in self.kept_names}

    def begin(self, values: Mapping[str, Any], rows: NDArray[np.int64] | None) -> None:
        """Begins an episode with these columns, in all lanes or in the lanes `rows`.

        The first call says which columns come with observations.
        """
        if not self.kept_names:
            self.values.update({name: self._new(name) for name in values})
            self.kept_names = tuple(values)
        if rows is None:
            self.keep(values)
            return
        for name, value in values.items():
            self.values[name][rows] = value

    def read(self, values: Sequence[Any]) -> Columns:
        """Puts a call's leaves into the row, except those of the next observation, which are returned.

        Args:
            values: see `StepColumns.leaves`.

        Raises:
            SpecError: with the path of what does not fit; kept columns did not change, others may have.
        """
        columns, acting = self._columns, len(self._columns.acting)
        if self._acting is None:
            values = checked(columns.checks, values)
            # The names end the pairs: they are as many as the values by construction.
            self.values.update(zip(columns.acting, values))  # noqa: B905
            return dict(zip(self._following, values[acting:]))  # noqa: B905
        # Checked and copied at once, which takes hardly longer than looking.
        self._acting.put(values)
        return dict(zip(self._following, checked(columns.observation.checks, values[acting:])))  # noqa: B905

    def keep(self, values: Mapping[str, Any]) -> None:
        """Puts the columns of an observation into the next row."""
        row = self.values
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
        return np.zeros((*self._leading, *spec.shape), spec.dtype)
