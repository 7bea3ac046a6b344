"""Gathers the contents of a source of episodes: one pass, in memory that does not grow with the number of steps."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.cli.episode_source import Source
from headrace.cli.inspect.columns import (
    ColumnGatherer,
    ColumnSummary,
    column_suspicions,
    is_counted,
    without_constancy,
)
from headrace.cli.inspect.contact_sheet import ContactSheet
from headrace.cli.inspect.contents import Contents, EpisodeRow
from headrace.cli.inspect.episode_checks import BoundsCheck, Copies
from headrace.cli.inspect.item_tables import TableSummary, read_tables
from headrace.datasets.exporting.structure import FREE_PARTS, Array, Structure, part_of
from headrace.trajectories.episode import Episode

# The columns of an episode that the rules for steps know by another name.
_STEP_NAMES = {"rewards": "reward", "terminations": "terminated", "truncations": "truncated"}


class ContentsReader:
    """Gathers the contents of episodes that are added one by one.

    Args:
        source: of the episodes; its spaces have the bounds of their values.
        with_images: whether images of the first episodes are kept.
    """

    def __init__(self, source: Source, *, with_images: bool) -> None:
        self._source, self._with_images = source, with_images
        self._rows: list[EpisodeRow] = []
        self._columns: _Columns | None = None
        self._copies = Copies()

    def add(self, episode: Episode) -> None:
        """Counts an episode."""
        if self._columns is None:
            self._columns = _Columns(Structure.of(episode), self._source, with_images=self._with_images)
        index = len(self._rows)
        arrays = self._columns.add(index, episode)
        self._copies.add(index, arrays)
        self._rows.append(
            EpisodeRow(
                index,
                episode.id,
                episode.seed,
                len(episode),
                episode.return_,
                episode.terminated,
                episode.truncated,
            )
        )

    def contents(self) -> Contents:
        """Returns the contents of the episodes so far."""
        if self._columns is None:
            return Contents({}, {}, [], {}, [], None)
        columns = self._columns
        summaries = {path: each.summary() for path, each in columns.gatherers.items()}
        tables = _tables(self._source)
        suspicious = [
            *column_suspicions(
                {_STEP_NAMES.get(path, path): _judged(path, each) for path, each in summaries.items()}
            ),
            *(sentence for check in columns.bounds for sentence in check.suspicions(len(self._rows))),
            *self._copies.suspicions(len(self._rows)),
            *(sentence for table in tables.values() for sentence in table.suspicions()),
        ]
        types = {path: str(column) for path, column in columns.structure.columns.items()}
        return Contents(types, summaries, suspicious, tables, self._rows, columns.sheet)


def _tables(source: Source) -> Mapping[str, TableSummary]:
    return {} if source.stored is None else read_tables(source.stored)


class _Columns:
    """The arrays of a step: their statistics, bounds and images."""

    def __init__(self, structure: Structure, source: Source, *, with_images: bool) -> None:
        self.structure = structure
        self.sheet = ContactSheet.of(structure) if with_images else None
        self.gatherers = {
            path: ColumnGatherer(column.dtype, column.shape)
            for path, column in structure.columns.items()
            if is_counted(column.dtype, column.shape)
        }
        spaces = {"observation_space": source.observation_space, "action_space": source.action_space}
        self.bounds = [
            BoundsCheck(name, space, structure) for name, space in spaces.items() if space is not None
        ]

    def add(self, index: int, episode: Episode) -> Mapping[str, Array]:
        """Counts an episode; returns its arrays by path."""
        arrays = self.structure.flatten(episode)
        for path, gatherer in self.gatherers.items():
            gatherer.add(arrays[path])
        for check in self.bounds:
            check.add(index, arrays)
        if self.sheet is not None:
            self.sheet.add(episode)
        return arrays


def _judged(path: str, column: ColumnSummary) -> ColumnSummary:
    # Columns that a policy or an environment adds may well be constant: a version, a number of lives.
    return without_constancy(column) if part_of(path) in FREE_PARTS else column
