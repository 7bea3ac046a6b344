"""The record of a run: `run.json` in the folder of a command says how its files came about."""

from __future__ import annotations

import json
import platform
import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from headrace.cli import ARGUMENTS
from headrace.cli.file_names import RUN
from headrace.cli.library_versions import installed_version
from headrace.datasets.exporting.atomic import writing
from headrace.errors import DatasetError

_LIBRARIES = ("headrace", "numpy", "torch", "gymnasium")


def write(folder: Path, *, environment: str, seed: int | None) -> None:
    """Writes the record of the command that runs: command line, environment, seed, date and versions.

    Args:
        folder: of the files that the command writes; a record that is there is replaced.
        environment: id of the environment.
        seed: None: the run cannot be repeated.
    """
    versions = {name: installed_version(name) or None for name in _LIBRARIES}
    record = {
        "command": shlex.join(["headrace", *click.get_current_context().meta[ARGUMENTS]]),
        "environment": environment,
        "seed": seed,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"python": platform.python_version(), **versions},
    }
    with writing(folder / RUN, overwrite=True) as temporary:
        temporary.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def read(folder: Path) -> dict[str, Any] | None:
    """Returns the record of a folder; None if it has none.

    Raises:
        DatasetError: the file is damaged.
    """
    path = folder / RUN
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError as error:
        raise DatasetError(
            f"{path}: expected JSON as headrace wrote it, got {error}; remove the file"
        ) from error
    if not isinstance(record, dict) or not isinstance(record.get("versions"), dict):
        raise DatasetError(f"{path}: expected an object with versions, got another; remove the file")
    return record


def rows(record: dict[str, Any] | None) -> list[tuple[str, Any]]:
    """Returns the record as rows of a table, without the environment and the seed, which metadata has too.

    >>> rows({"command": "headrace train E", "seed": 0, "versions": {"python": "3.12", "torch": None}})
    [('command', 'headrace train E'), ('versions', 'python 3.12')]
    """
    if record is None:
        return []
    present = {name: version for name, version in record["versions"].items() if version is not None}
    versions = ", ".join(f"{name} {version}" for name, version in present.items())
    shown = [(name, record[name]) for name in ("command", "date") if name in record]
    return [*shown, ("versions", versions)]
