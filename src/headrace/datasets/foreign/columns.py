"""Columns in files of other tools, found by the usual names."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from headrace.datasets.exporting.structure import FREE_PARTS, part_of
from headrace.datasets.nesting import nested
from headrace.errors import DatasetError
from headrace.trajectories.episode import Episode


def find_columns(
    file: Path, names: Collection[str], accepted: Mapping[str, Collection[str]], missing: Collection[str]
) -> dict[str, str]:
    """Maps the path of each array in an episode to its name in the file.

    Args:
        file: for errors.
        names: of all columns in the file.
        accepted: maps each required part of an episode to the names that it may have.
        missing: further columns that the file lacks, for the error.

    Raises:
        DatasetError: columns are missing.
    """
    found: dict[str, str] = {}
    lacking: list[str] = []
    for part, alternatives in accepted.items():
        there = [name for name in names if part_of(name) in alternatives]
        found.update({part + name.removeprefix(part_of(name)): name for name in there})
        lacking += [] if there else [" or ".join(alternatives)]
    lacking += missing
    if lacking:
        raise DatasetError(
            f"{file}: expected the columns of episodes, but there is no {', no '.join(lacking)}; there are "
            f"{', '.join(names) or 'none'}"
        )
    found.update({name: name for name in names if "/" in name and part_of(name) in FREE_PARTS})
    return found


def episode_of(arrays: Mapping[str, Any], name: int | str | None = None) -> Episode:
    """Returns the episode of these arrays by path.

    Raises:
        SpecError: the arrays do not make an episode.
    """
    return Episode(**{"infos": {}, "extras": {}, **nested(arrays)}, id=name)
