"""Episodes that ended, with returns and lengths, from rows in the order in which they were collected."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from headrace.datasets.exporting.atomic import writing
from headrace.errors import DatasetError


@dataclass(frozen=True)
class EndedEpisode:
    """One episode that ended.

    Attributes:
        episode_id: the number that the collector gave it.
        return_: the sum of its rewards.
        length: the number of its transitions.
        terminated, truncated: how it ended.
        frame: the frames of all environments, counted up to its end.
    """

    episode_id: int
    return_: float
    length: int
    terminated: bool
    truncated: bool
    frame: int


class EpisodeLog:
    """Sums of the rewards of each episode.

    Rows of one episode must come in order. Rows of several episodes may be mixed in any way.

    Attributes:
        ended: the episodes that ended, in the order of their ends.
        frames: the number of rows added.

    >>> log = EpisodeLog()
    >>> log.add(np.array([0, 1, 0]), np.array([1.0, 5.0, 2.0]), np.array([0, 0, 1], bool), np.zeros(3, bool))
    >>> log.ended
    [EndedEpisode(episode_id=0, return_=3.0, length=2, terminated=True, truncated=False, frame=3)]
    """

    def __init__(self) -> None:
        self.ended: list[EndedEpisode] = []
        self.frames = 0
        self._open: dict[int, tuple[float, int]] = {}

    def add(
        self,
        episode_id: NDArray[np.int64],
        reward: NDArray[np.floating[Any]],
        terminated: NDArray[np.bool_],
        truncated: NDArray[np.bool_],
    ) -> None:
        """Adds the next rows; all arrays are `[K]`."""
        ids, index = np.unique(episode_id, return_inverse=True)
        returns = np.bincount(index, weights=reward, minlength=len(ids))
        lengths = np.bincount(index, minlength=len(ids))
        for number, return_, length in zip(ids.tolist(), returns.tolist(), lengths.tolist(), strict=True):
            before = self._open.get(number, (0.0, 0))
            self._open[number] = (before[0] + return_, before[1] + length)
        for row in np.flatnonzero(terminated | truncated).tolist():
            number = int(episode_id[row])
            return_, length = self._open.pop(number)
            self.ended.append(
                EndedEpisode(
                    number,
                    return_,
                    length,
                    bool(terminated[row]),
                    bool(truncated[row]),
                    self.frames + row + 1,
                )
            )
        self.frames += len(episode_id)

    def state_dict(self) -> dict[str, Any]:
        """Returns all episodes and the sums of those under way, as plain containers."""
        return {
            "ended": [astuple(episode) for episode in self.ended],
            "frames": self.frames,
            "open": dict(self._open),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from the state of another log."""
        self.ended = [EndedEpisode(*episode) for episode in state["ended"]]
        self.frames = state["frames"]
        self._open = dict(state["open"])

    @property
    def unfinished(self) -> int:
        """The number of episodes under way."""
        return len(self._open)

    def mean_return(self, last: int) -> float | None:
        """Returns the mean return of the `last` episodes that ended; None if fewer have ended."""
        if len(self.ended) < last:
            return None
        return float(np.mean([episode.return_ for episode in self.ended[-last:]]))


def write_csv(path: Path, episodes: Sequence[EndedEpisode]) -> None:
    """Writes a header, and one line per episode. An existing file is replaced, completely or not at all."""
    with (
        writing(path, overwrite=True) as temporary,
        temporary.open("w", newline="", encoding="utf-8") as file,
    ):
        writer = csv.writer(file)
        writer.writerow(field.name.rstrip("_") for field in fields(EndedEpisode))
        writer.writerows(astuple(episode) for episode in episodes)


def read_csv(path: Path) -> list[EndedEpisode]:
    """Reads what `write_csv` wrote.

    Raises:
        DatasetError: `path` is not such a file.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return [
                EndedEpisode(
                    int(row["episode_id"]),
                    float(row["return"]),
                    int(row["length"]),
                    row["terminated"] == "True",
                    row["truncated"] == "True",
                    int(row["frame"]),
                )
                for row in csv.DictReader(file)
            ]
    except (ValueError, KeyError, TypeError) as error:
        raise DatasetError(f"{path}: expected one line for each episode that ended ({error})") from error


class Outcome(Protocol):
    """The return and the length of an episode."""

    @property
    def return_(self) -> float:
        """The sum of the rewards."""

    @property
    def length(self) -> int:
        """The number of transitions."""


def spreads(episodes: Sequence[Outcome]) -> dict[str, dict[str, float | None]]:
    """Returns mean, minimum and maximum of returns and lengths; None without episodes.

    >>> spreads([])["return"]
    {'mean': None, 'min': None, 'max': None}
    """
    return {
        "return": _spread([episode.return_ for episode in episodes]),
        "length": _spread([episode.length for episode in episodes]),
    }


def _spread(values: Sequence[float]) -> dict[str, float | None]:
    if not values:
        return {"mean": None, "min": None, "max": None}
    return {"mean": float(np.mean(values)), "min": min(values), "max": max(values)}
