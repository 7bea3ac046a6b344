"""Writes the episodes of a source in another format, and prints a summary."""

from __future__ import annotations

import json
import operator
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from headrace.cli import tables
from headrace.cli.episode_source import Source, open_source
from headrace.cli.progress import ProgressLine
from headrace.cli.tally import Tally
from headrace.datasets import save_minari, save_npz, save_parquet
from headrace.datasets.minari.ids import check_id
from headrace.datasets.minari.spaces import unbounded
from headrace.errors import SpecError


@dataclass(frozen=True, kw_only=True)
class Request:
    """The options of the command; see its help. `reading` are those for `open_source`."""

    source: str
    to: str
    dataset_id: str | None
    out: Path | None
    overwrite: bool
    reading: dict[str, Any]


def run(request: Request, *, as_json: bool) -> None:
    """Exports, and prints the result.

    Raises:
        click.UsageError: options that do not go together, a wrong id, or a source that does not exist.
        click.ClickException: the dataset could not be written.
    """
    _check(request)
    begin = time.perf_counter()
    with open_source(request.source, **request.reading) as source:
        with ProgressLine(operator.length_hint(source.episodes), "episodes", quiet=as_json) as line:
            path, tally = _save(request, source, line)
        left_out = source.left_out
    result = {
        "source": request.source,
        "path": str(path),
        **asdict(tally),
        "left_out": left_out,
        "seconds": round(time.perf_counter() - begin, 3),
    }
    if as_json:
        click.echo(json.dumps(result))
        return
    rows = [(name.replace("_", " "), value) for name, value in result.items() if name != "path"]
    tables.show(f"{source.kind} to {request.to}", rows)
    click.echo(f"written to {path}")


def _check(request: Request) -> None:
    if request.to != "minari":
        if request.out is None:
            raise click.UsageError(f"--to {request.to} needs --out, the file to write")
        if request.dataset_id is not None:
            raise click.UsageError(f"--id is for --to minari; for {request.to} give --out alone")
        return
    if request.dataset_id is None:
        raise click.UsageError("--to minari needs --id, such as name-v0")
    try:
        check_id(request.dataset_id)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="'--id'") from error


def _save(request: Request, source: Source, line: ProgressLine) -> tuple[Path, Tally]:
    try:
        if request.to == "minari":
            return _save_minari(request, source, line)
        tally = Tally()
        save = save_parquet if request.to == "parquet" else save_npz
        path = save(
            tally.counted(source.episodes),
            str(request.out),
            metadata=source.metadata,
            overwrite=request.overwrite,
            progress=lambda done, _: line.show(done),
        )
        return path, tally
    except FileExistsError as error:
        raise click.ClickException(f"{error.args[0]} (here: --overwrite)") from error
    except (OSError, ValueError) as error:
        raise click.ClickException(f"{type(error).__name__}: {error}") from error


def _save_minari(request: Request, source: Source, line: ProgressLine) -> tuple[Path, Tally]:
    spaces = source.observation_space, source.action_space
    try:
        return _save_with_spaces(request, source, spaces, line)
    except SpecError as error:
        # Many environments leave their own bounds. A replay can be read only once, but it has no spaces.
        wider = (unbounded(spaces[0]), unbounded(spaces[1]))
        if wider == spaces:
            raise
        saved = _save_with_spaces(request, source, wider, line)
        line.warn(f"{error}; the dataset has spaces without bounds")
        return saved


def _save_with_spaces(
    request: Request, source: Source, spaces: tuple[Any, Any], line: ProgressLine
) -> tuple[Path, Tally]:
    tally = Tally()
    path = save_minari(
        tally.counted(source.episodes),
        str(request.dataset_id),
        root=request.out,
        observation_space=spaces[0],
        action_space=spaces[1],
        env_spec=source.env_spec,
        overwrite=request.overwrite,
        progress=lambda done, _: line.show(done),
    )
    return path, tally
