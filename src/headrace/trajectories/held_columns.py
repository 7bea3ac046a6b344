"""The columns of a step, of which some are kept from one call to the next: what the next row begins with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.spec import ArraySpec


class HeldColumns:
    """Copies of what was seen last: the caller may change its arrays after the call.

    Args:
        specs: of all columns.
        lanes: the axis that every array has in front; None for none.

    Attributes:
        names: of the columns that are kept.
        row: column to value: those that are kept, and whatever else the writer puts in for the step that it takes.
    """

    def __init__(self, specs: Mapping[str, ArraySpec], lanes: int | None) -> None:
        self._specs = specs
        self._lanes = lanes
        self.names: tuple[str, ...] = ()
        self.row: dict[str, Any] = {}
        self._spare: dict[str, NDArray[Any]] = {}

    @property
    def kept(self) -> dict[str, Any]:
        """Those that are kept."""
        return {name: self.row[name] for name in self.names}

    def put(self, values: Mapping[str, Any], rows: NDArray[np.int64] | None) -> None:
        """Keep these from now on; only in some lanes if `rows` says which. The first call says which are kept."""
        for name in values:
            if name not in self._spare:
                self.row[name] = self._new(name)
                self._spare[name] = self._new(name)
        self.names = tuple(self._spare)
        if rows is None:
            self.turn(values)
            return
        for name, value in values.items():
            self.row[name][rows] = value

    def turn(self, values: Mapping[str, Any]) -> None:
        """Keep these from now on."""
        row, spare = self.row, self._spare
        for name, value in values.items():
            into = spare[name]
            if into.ndim:
                # The array that the last row was written from is free for the row after the next.
                into[...] = value
                row[name], spare[name] = into, row[name]
            else:
                row[name] = value[()] if type(value) is np.ndarray else value

    def _new(self, name: str) -> NDArray[Any]:
        spec = self._specs[name]
        leading = () if self._lanes is None else (self._lanes,)
        return np.zeros((*leading, *spec.shape), spec.dtype)
