"""What `headrace export` does."""

from __future__ import annotations

import json
import operator
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape

from headrace.cli import screen
from headrace.cli.export_source import Source, open_source
from headrace.cli.export_tally import Tally
from headrace.datasets import save_minari, save_npz, save_parquet
from headrace.datasets.minari_ids import check_id
from headrace.datasets.progress import Report
from headrace.trajectories.episode import Episode


@dataclass(frozen=True, kw_only=True)
class Request:
    """The options of the command; see its help."""

    source: str
    to: str
    dataset_id: str | None
    out: Path | None
    overwrite: bool


def run(request: Request, *, as_json: bool) -> None:
    """Export, and print the result.

    Raises:
        click.UsageError: options that do not go together, an id that is none, or a source that is not there.
        click.ClickException: it could not be written.
    """
    _check(request)
    console = Console(stderr=as_json, quiet=as_json)
    tally = Tally()
    begin = time.perf_counter()
    with open_source(request.source) as source:
        with screen.ProgressLine(operator.length_hint(source.episodes), console) as line:
            path = _save(request, source, tally, lambda done, _: line.show(done, f"{done} episodes"))
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
    console.print(
        screen.facts(
            f"{source.kind} to {request.to}",
            [
                (name.replace("_", " "), escape(screen.number(value)))
                for name, value in result.items()
                if name != "path"
            ],
        )
    )
    console.print(f"written to {path}", highlight=False, soft_wrap=True)


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


def _save(request: Request, source: Source, tally: Tally, progress: Report) -> Path:
    episodes = tally.counted(source.episodes)
    try:
        return _writer(request, source, episodes, progress)
    except FileExistsError as error:
        raise click.ClickException(f"{error.args[0]} (here: --overwrite)") from error
    except (OSError, ValueError) as error:
        raise click.ClickException(f"{type(error).__name__}: {error}") from error


def _writer(request: Request, source: Source, episodes: Iterator[Episode], progress: Report) -> Path:
    common: dict[str, Any] = {"overwrite": request.overwrite, "progress": progress}
    if request.to == "minari":
        return save_minari(
            episodes,
            str(request.dataset_id),
            root=request.out,
            observation_space=source.observation_space,
            action_space=source.action_space,
            **common,
        )
    save = save_parquet if request.to == "parquet" else save_npz
    return save(episodes, str(request.out), metadata=source.metadata, **common)
