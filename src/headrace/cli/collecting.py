"""What `headrace collect` does."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from headrace import trees
from headrace.cli import environments, episodes, output, tables
from headrace.cli.episode_file import EpisodeFile
from headrace.cli.episodes import EpisodeLog
from headrace.cli.importing import import_module
from headrace.cli.progress import ProgressLine
from headrace.collectors import AsyncCollector, Batch, Collector

# Steps of each copy in one batch, at most: long enough that handing it over costs nothing, short enough to show
# progress.
_BATCH_STEPS = 64
DATASET, TABLE = "episodes.npz", "episodes.csv"


@dataclass(frozen=True, kw_only=True)
class Request:
    """The options of the command; see its help."""

    env_id: str
    steps: int
    workers: int
    num_envs: int
    policy: str
    out: Path | None
    overwrite: bool
    seed: int | None

    @property
    def frames_per_batch(self) -> int:
        """Of batches of one size that give the steps asked for with the least beyond them."""
        steps = -(-self.steps // self.num_envs)
        batches = -(-steps // _BATCH_STEPS)
        return -(-steps // batches) * self.num_envs

    @property
    def total_frames(self) -> int:
        """The steps asked for, rounded up to whole batches; what is beyond them is not kept."""
        return -(-self.steps // self.frames_per_batch) * self.frames_per_batch


def run(request: Request, *, as_json: bool) -> None:
    """Collect, write the files, print the result.

    Raises:
        click.BadParameter: an environment or a policy that is not there.
        click.ClickException: files of an earlier run are there; Ctrl-C.
        Exception: what ended the run early, after the files are written.
    """
    environments.spec(request.env_id)
    factory = policy_factory(request.policy)
    log = EpisodeLog()
    stopped: BaseException | None = None
    with _files(request, log) as file:
        seconds = 0.0
        try:
            with _collector(request, factory) as collector:
                begin = time.perf_counter()
                try:
                    with ProgressLine(request.steps, "frames", quiet=as_json) as line:
                        _collect(collector, request.steps, log, file, line)
                finally:
                    seconds = time.perf_counter() - begin
        except (KeyboardInterrupt, Exception) as error:
            # What was collected is kept, whatever ended the run.
            stopped = error
    if log.frames or stopped is None:
        _tell(_result(request, log, seconds), as_json=as_json)
    if isinstance(stopped, KeyboardInterrupt):
        raise output.Interrupted(_aborted(request, log)) from stopped
    if stopped is not None:
        raise stopped


@contextlib.contextmanager
def _files(request: Request, log: EpisodeLog) -> Iterator[EpisodeFile | None]:
    """Gives the file that takes rows; both files are written at the end, if there are any rows."""
    if request.out is None:
        yield None
        return
    with output.folder_for(request.out, (DATASET, TABLE), request.overwrite) as folder:
        metadata = environments.metadata(request.env_id) | _metadata(request)
        with contextlib.ExitStack() as at_end:
            file = EpisodeFile(folder / DATASET, metadata)
            at_end.callback(_write_table, folder / TABLE, log)
            at_end.callback(file.close)
            try:
                yield file
            finally:
                with output.finishing("writing what was collected"):
                    at_end.close()


def _write_table(path: Path, log: EpisodeLog) -> None:
    if log.frames:
        episodes.write_csv(path, log.ended)


def _result(request: Request, log: EpisodeLog, seconds: float) -> dict[str, Any]:
    return {
        "environment": request.env_id,
        "frames": log.frames,
        "seconds": round(seconds, 3),
        "frames_per_second": round(log.frames / seconds, 1),
        **episodes.summary(log.ended),
        "unfinished": log.unfinished,
        "out": None if request.out is None else str(request.out),
    }


def _aborted(request: Request, log: EpisodeLog) -> str:
    """Tells what Ctrl-C has left."""
    if not log.frames:
        return "Aborted by Ctrl-C before anything was collected"
    kept = "" if request.out is None else f"; what was collected is in {request.out}"
    return f"Aborted by Ctrl-C after {log.frames} of {request.steps} frames{kept}"


def policy_factory(name: str) -> Callable[[], Any] | None:
    """The factory that `module:name` names; None for `random`.

    Raises:
        click.BadParameter: there is none.
    """
    if name == "random":
        return None
    module_name, _, attribute = name.partition(":")
    try:
        factory = getattr(import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise click.BadParameter(
            f"expected random or module:factory, got {name!r} ({error})", param_hint="'--policy'"
        ) from error
    if not callable(factory):
        raise click.BadParameter(f"{name} is not callable", param_hint="'--policy'")
    return factory  # type: ignore[no-any-return]


def _collector(request: Request, factory: Callable[[], Any] | None) -> Collector | AsyncCollector:
    kind: type[Collector | AsyncCollector] = AsyncCollector if request.workers else Collector
    return kind(
        environments.make,
        policy_factory=factory,
        create_env_kwargs={"env_id": request.env_id},
        frames_per_batch=request.frames_per_batch,
        total_frames=request.total_frames,
        num_envs=request.num_envs,
        seed=request.seed,
    )


def _collect(
    collector: Collector | AsyncCollector,
    steps: int,
    log: EpisodeLog,
    file: EpisodeFile | None,
    line: ProgressLine,
) -> None:
    begin = time.perf_counter()
    for batch in collector:
        rows = _in_order(batch, steps - log.frames)
        # The file first: what the log has counted is in it, whenever Ctrl-C comes.
        if file is not None:
            file.append(rows)
        log.add(rows["episode_id"], rows["reward"], rows["terminated"], rows["truncated"])
        rate = log.frames / (time.perf_counter() - begin)
        line.show(log.frames, f"{rate:.0f} frames/s  {len(log.ended)} episodes")


def _in_order(batch: Batch, most: int) -> dict[str, Any]:
    """The first transitions of a batch, in the order in which they came; all columns but the mask."""
    steps, copies = (indices[:most] for indices in np.nonzero(batch["mask"].T))
    return {
        name: trees.map_leaves(lambda leaf: leaf[copies, steps], tree)
        for name, tree in batch.items()
        if name != "mask"
    }


def _metadata(request: Request) -> dict[str, Any]:
    """What `headrace inspect` tells of the dataset."""
    return {"environment": request.env_id, "policy": request.policy, "seed": request.seed}


def _tell(result: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(result))
        return
    unfinished = f", and {result['unfinished']} unfinished" if result["unfinished"] else ""
    tables.show_spreads(
        f"{result['environment']}: {result['episodes']} episodes{unfinished}",
        {name: result[name] for name in ("return", "length")},
    )
    click.echo(
        f"{result['frames']} frames in {result['seconds']:.1f} s: {result['frames_per_second']:.0f} frames/s"
    )
    if result["out"] is not None:
        click.echo(f"written to {result['out']}: {DATASET}, {TABLE}")
