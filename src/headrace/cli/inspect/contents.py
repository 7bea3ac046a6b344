"""Contents of a source of episodes, as `headrace inspect` shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.cli.inspect.columns import ColumnSummary
    from headrace.cli.inspect.contact_sheet import ContactSheet
    from headrace.cli.inspect.item_tables import TableSummary


@dataclass(frozen=True)
class EpisodeRow:
    """One line of the table of episodes."""

    episode: int
    id: int | str | None
    seed: int | None
    length: int
    return_: float
    terminated: bool
    truncated: bool

    @property
    def end(self) -> str:
        """The flags of its last step, in words."""
        return " ".join(name for name in ("terminated", "truncated") if getattr(self, name)) or "unfinished"


@dataclass(frozen=True)
class Contents:
    """The arrays of a step, all episodes, and what is suspicious in them.

    Attributes:
        columns: maps the name of each array to its dtype and its shape in one step.
        summaries: maps the name of each array of numbers to its statistics.
        suspicious: sentences about what may be wrong.
        tables: maps the name of each table to its items; empty where they are not known.
        rows: one entry per episode.
        sheet: images of the first episodes; None without images.
    """

    columns: dict[str, str]
    summaries: dict[str, ColumnSummary]
    suspicious: list[str]
    tables: Mapping[str, TableSummary]
    rows: list[EpisodeRow]
    sheet: ContactSheet | None
