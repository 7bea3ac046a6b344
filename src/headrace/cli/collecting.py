"""What `headrace collect` does."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from headrace.cli import environments, episodes, screen
from headrace.cli.episode_file import EpisodeFile
from headrace.cli.episodes import EpisodeLog
from headrace.cli.importing import import_module
from headrace.collectors import AsyncCollector, Batch, Collector

# Steps of each copy in one batch: long enough that handing it over costs nothing, short enough to show progress.
_BATCH_STEPS = 64


@dataclass(frozen=True, kw_only=True)
class Request:
    """The options of the command; see its help."""

    env_id: str
    steps: int
    workers: int
    num_envs: int
    policy: str
    out: Path | None
    seed: int | None

    @property
    def frames_per_batch(self) -> int:
        """A whole number of steps of all copies, and no more than was asked for."""
        most = -(-self.steps // self.num_envs)
        return min(_BATCH_STEPS, most) * self.num_envs

    @property
    def total_frames(self) -> int:
        """The steps asked for, rounded up to whole batches."""
        return -(-self.steps // self.frames_per_batch) * self.frames_per_batch


def run(request: Request, *, as_json: bool) -> None:
    """Collect, write the files, print the result.

    Raises:
        click.BadParameter: an environment or a policy that is not there.
    """
    environments.spec(request.env_id)
    factory = policy_factory(request.policy)
    console = Console(stderr=as_json, quiet=as_json)
    log = EpisodeLog()
    with contextlib.ExitStack() as stack:
        file = None
        if request.out is not None:
            request.out.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(EpisodeFile(request.out / "episodes.npz", _metadata(request)))
            stack.callback(lambda folder: episodes.write_csv(folder / "episodes.csv", log.ended), request.out)
        collector = _collector(request, factory)
        stack.push(collector)
        line = stack.enter_context(screen.ProgressLine(request.total_frames, console))
        seconds = _collect(collector, log, file, line)
    result = {
        "environment": request.env_id,
        "frames": log.frames,
        "seconds": round(seconds, 3),
        "frames_per_second": round(log.frames / seconds, 1),
        **episodes.summary(log.ended),
        "out": None if request.out is None else str(request.out),
    }
    if as_json:
        click.echo(json.dumps(result))
    else:
        _show(console, result)


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
    log: EpisodeLog,
    file: EpisodeFile | None,
    line: screen.ProgressLine,
) -> float:
    begin = time.perf_counter()
    for batch in collector:
        rows = batch.flatten()
        log.add(rows["episode_id"], rows["reward"], rows["terminated"], rows["truncated"])
        if file is not None:
            file.append(_kept(rows))
        rate = log.frames / (time.perf_counter() - begin)
        line.show(log.frames, f"{rate:.0f} frames/s  {len(log.ended)} episodes")
    return time.perf_counter() - begin


def _metadata(request: Request) -> dict[str, Any]:
    """What `headrace inspect` tells of the dataset."""
    return {"environment": request.env_id, "policy": request.policy, "seed": request.seed}


def _kept(rows: Batch) -> dict[str, Any]:
    """All columns but the mask, which is true on every row of a flat batch."""
    return {name: tree for name, tree in rows.items() if name != "mask"}


def _show(console: Console, result: dict[str, Any]) -> None:
    title = f"{result['environment']}: {result['episodes']} episodes"
    console.print(screen.spreads(title, [("return", result["return"]), ("length", result["length"])]))
    console.print(
        f"{result['frames']} frames in {result['seconds']:.1f} s: {result['frames_per_second']:.0f} frames/s",
        highlight=False,
    )
    if result["out"] is not None:
        console.print(
            f"written to {result['out']}: episodes.npz, episodes.csv", highlight=False, soft_wrap=True
        )
