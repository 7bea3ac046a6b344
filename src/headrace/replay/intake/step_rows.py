"""Values of steps on their way into rows: written before the step is committed, and invisible until then."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from numpy.typing import NDArray

from headrace.replay.intake.final_columns import FinalColumns
from headrace.replay.intake.lanes import Lanes
from headrace.spec import check_array
from headrace.store.block import LaneBlock
from headrace.store.columns import LaneColumns, RowColumns
from headrace.store.staging import Stage
from headrace.store.store import Store

Values = Mapping[str, NDArray[Any]]


class StepRows:
    """Writes steps and final rows of lanes.

    Args:
        store: of the rows.
        lanes: the lanes.

    Attributes:
        staged: see `WriterLike.staged`.
        put: writes the columns of a step of the only block, from a row on; see `RowColumns.put` and `LaneColumns.put`.
    """

    def __init__(self, store: Store, lanes: Lanes) -> None:
        self._signature = store.signature
        self._specs = store.signature.columns
        self._width = len(self._specs)
        self._count = lanes.count
        self._columns = list(store.columns.items())
        self._finals = FinalColumns(store.signature)
        self._puts = {
            block: _put(store, stage, block.lanes)
            for block, stage in zip(lanes.blocks, lanes.stages, strict=True)
        }
        self.put = self._puts[lanes.blocks[0]]
        only = lanes.stages[0] if len(lanes.stages) == 1 else None
        self.staged: Values = {} if only is None else only.arrays

    def write(self, row: int, step: Any) -> None:
        """Writes one step of every lane of the only block, from `row` on or where it is staged.

        Raises:
            SpecError: the step does not fit.
        """
        # A dict of columns is taken for any signature: no key of a tree has the "/" of their names.
        if type(step) is dict and len(step) == self._width:
            try:
                self.put(row, step)
                return
            except KeyError:
                pass  # `flatten` says what is missing.
        self.put(row, self._signature.flatten(step))

    def write_block(self, block: LaneBlock, lanes: slice, values: Values) -> None:
        """Writes the next step of a block.

        Args:
            block: of `lanes`.
            lanes: lanes of the block.
            values: columns `[N, ...]` of all lanes, which fit.
        """
        if self._count == 1:
            values = {name: value[0] for name, value in values.items()}
        elif block.lanes != self._count:
            values = {name: value[lanes] for name, value in values.items()}
        self._puts[block](block.row, values)

    def write_finals(self, row: int, values: Values, part: slice) -> None:
        """Writes final rows from `row` on: this part of `values`, zero in the other columns."""
        rows = slice(row, row + part.stop - part.start)
        for name, column in self._columns:
            given = values.get(name)
            column[rows] = 0 if given is None else given[part]

    def check(self, step: Any) -> None:
        """Checks a step as it is given to `WriterLike.append`.

        Raises:
            SpecError: the step does not fit.
        """
        self._signature.validate(step, (self._count,) if self._count > 1 else ())

    def checked(self, step: Any) -> dict[str, NDArray[Any]]:
        """Returns the columns `[N, ...]` of a step of every lane.

        Raises:
            SpecError: the step does not fit.
        """
        specs = self._specs
        if isinstance(step, dict) and step.keys() == specs.keys():
            return {name: check_array(step[name], spec, name, (self._count,)) for name, spec in specs.items()}
        return self._signature.validate(step, (self._count,))

    def checked_finals(self, final: Any, count: int) -> dict[str, NDArray[Any]]:
        """Returns the columns `[count, ...]` of final rows; in `final` a single one has no axis in front.

        Raises:
            SpecError: `final` does not fit.
        """
        if count > 1:
            return self._finals.read(final, (count,))
        return {name: value[None] for name, value in self._finals.read(final, ()).items()}


def _put(store: Store, stage: Stage | None, lanes: int) -> Callable[[int, Mapping[str, Any]], None]:
    """Returns the function that writes one step of every lane of a block at a row."""
    specs, columns = store.signature.columns, store.columns
    if stage is not None:
        return LaneColumns(((name, columns[name], spec) for name, spec in specs.items()), lanes, stage).put
    return RowColumns(
        (name, columns[name], partial(check_array, spec=spec, path=name)) for name, spec in specs.items()
    ).put
