"""Contents of a source of episodes, as `headrace inspect` tells them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.cli.inspect_picture import ContactSheet


@dataclass(frozen=True)
class EpisodeRow:
    """One line of the table of contents."""

    episode: int
    id: int | str | None
    seed: int | None
    length: int
    return_: float
    terminated: bool
    truncated: bool

    @property
    def end(self) -> str:
        """How it ended, in words."""
        return " ".join(name for name in ("terminated", "truncated") if getattr(self, name)) or "unfinished"


@dataclass(frozen=True)
class Contents:
    """What all episodes of a source have in common, and each of them.

    Attributes:
        columns: name of each array to its dtype and shape, of one step.
        rows: an entry for each episode.
        sheet: some of its images; None where it has none.
    """

    columns: dict[str, str]
    rows: list[EpisodeRow]
    sheet: ContactSheet | None
