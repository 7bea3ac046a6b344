"""Collects episodes, writes them to files, and prints a summary."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np

from headrace import trees
from headrace.cli import environments, episodes, interruption, output_folder, run_record, tables
from headrace.cli.collect import time_shares
from headrace.cli.collect.episode_file import EpisodeFile
from headrace.cli.episodes import EpisodeLog
from headrace.cli.file_names import DATASET, EPISODES, RUN, TRACE, TRACE_PICTURE
from headrace.cli.progress import ProgressLine
from headrace.cli.stdout_aside import StdoutAside
from headrace.cli.user_modules import import_module
from headrace.collectors import AsyncCollector, Batch, Collector, MultiCollector

# Steps of each environment in one batch, at most: enough that the cost of a batch does not show, and few enough to
# show progress.
_BATCH_STEPS = 64
# Rollouts in a trace, at most: enough to see a pattern, and few enough to be looked at.
_MOST_RECORDED = 20


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
    profile: bool
    seed: int | None

    @property
    def is_trained_policy(self) -> bool:
        """Whether `--policy` is a file of `headrace train`."""
        return self.policy.endswith(".pt")

    @property
    def profiled_workers(self) -> range:
        """Numbers of the workers whose trace is written; none without a folder."""
        return range(max(1, self.workers) if self.profile and self.out is not None else 0)

    @property
    def files(self) -> list[str]:
        """The names of all files that are written."""
        traces = [TRACE.format(worker_idx=idx) for idx in self.profiled_workers]
        return [DATASET, EPISODES, *traces, *([TRACE_PICTURE] if traces else []), RUN]

    @property
    def frames_per_batch(self) -> int:
        """The batch size for which equal batches exceed the requested steps least."""
        num_envs = self.num_envs * max(1, self.workers)
        steps = -(-self.steps // num_envs)
        batches = -(-steps // _BATCH_STEPS)
        return -(-steps // batches) * num_envs

    @property
    def total_frames(self) -> int:
        """The requested steps, rounded up to whole batches; the frames beyond are not kept."""
        return -(-self.steps // self.frames_per_batch) * self.frames_per_batch


def run(request: Request, *, as_json: bool) -> None:
    """Collects, writes the files, and prints the result.

    Raises:
        click.BadParameter: the environment or the policy does not exist.
        click.ClickException: files of an earlier run exist; Ctrl-C.
        Exception: the error that ended the run early, after the files are written.
    """
    environments.spec(request.env_id)
    factory = policy_factory(request)
    make = _environment_maker(request)
    log = EpisodeLog()
    stop: BaseException | None = None
    # Workers inherit stdout: what their environments print would stand in the midst of the JSON object.
    aside = StdoutAside() if as_json else contextlib.nullcontext()
    with aside, _files(request, make, log) as file:
        seconds, parts = 0.0, dict.fromkeys(time_shares.PARTS, 0.0)
        try:
            with _collector(request, make, factory) as collector:
                begin = time.perf_counter()
                try:
                    _enable_profile(collector, request)
                    with ProgressLine(request.steps, "frames", quiet=as_json) as line:
                        _collect(collector, request.steps, log, file, line)
                finally:
                    seconds = time.perf_counter() - begin
                    parts = time_shares.seconds_of(collector.statistics())
        except (KeyboardInterrupt, Exception) as error:
            # The frames collected so far are kept after any error.
            stop = error
        _draw_profile(request)
    if log.frames or stop is None:
        result = _result(request, log, seconds)
        if request.profile:
            result["time"] = {part: round(value, 3) for part, value in parts.items()}
        _print(result, as_json=as_json)
    interruption.raise_stop(stop, _notice(request, log))


@contextlib.contextmanager
def _files(request: Request, make: Callable[..., Any], log: EpisodeLog) -> Iterator[EpisodeFile | None]:
    """Gives the file that takes rows. Both files are written at the end, if there are rows."""
    if request.out is None:
        yield None
        return
    with output_folder.folder_for(request.out, request.files, request.overwrite) as folder:
        metadata = environments.metadata(request.env_id, make) | _metadata(request)
        with contextlib.ExitStack() as at_end:
            file = EpisodeFile(folder / DATASET, metadata)
            at_end.callback(_write_record, folder, request, log)
            at_end.callback(_write_table, folder / EPISODES, log)
            at_end.callback(file.close)
            try:
                yield file
            finally:
                with interruption.finishing("writing what was collected"):
                    at_end.close()


def _enable_profile(collector: Collector | MultiCollector, request: Request) -> None:
    """Records the first rollouts but one, which has what is done only once."""
    workers = request.profiled_workers
    if not workers or request.out is None:
        return
    for name in request.files[2:]:
        (request.out / name).unlink(missing_ok=True)  # An aborted run leaves no files of an earlier one.
    rollouts = min(request.total_frames // request.frames_per_batch, _MOST_RECORDED + 1)
    collector.enable_profile(
        workers=workers,
        num_rollouts=rollouts,
        warmup_rollouts=min(1, rollouts - 1),
        save_path=request.out / TRACE,
    )


def _draw_profile(request: Request) -> None:
    if request.out is None:
        return
    traces = [request.out / TRACE.format(worker_idx=idx) for idx in request.profiled_workers]
    if traces and all(trace.exists() for trace in traces):
        try:
            time_shares.draw(traces, request.out / TRACE_PICTURE)
        except ImportError as error:  # The traces are there.
            click.echo(str(error), err=True)


def _write_table(path: Path, log: EpisodeLog) -> None:
    if log.frames:
        episodes.write_csv(path, log.ended)


def _write_record(folder: Path, request: Request, log: EpisodeLog) -> None:
    if log.frames:
        run_record.write(folder, environment=request.env_id, seed=request.seed)


def _metadata(request: Request) -> dict[str, Any]:
    return {"environment": request.env_id, "policy": request.policy, "seed": request.seed}


def policy_factory(request: Request) -> Callable[[], Any] | None:
    """Returns the factory of the policy that `--policy` names; None for `random`.

    Raises:
        click.BadParameter: there is no such factory, or the policy of the file does not fit the environment.
        CheckpointError: the file is not a policy of `headrace train`.
    """
    name = request.policy
    if name == "random":
        return None
    if request.is_trained_policy:
        from headrace.cli.dqn import checkpoint, fitting

        fitting.load_for(
            Path(name), request.env_id
        )  # A file that does not fit is told before a worker starts.
        return partial(checkpoint.load, Path(name).resolve())
    module_name, _, attribute = name.partition(":")
    try:
        factory = getattr(import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise click.BadParameter(
            f"expected random, module:factory or a policy.pt, got {name!r} ({error})", param_hint="'--policy'"
        ) from error
    if not callable(factory):
        raise click.BadParameter(f"{name} is not callable", param_hint="'--policy'")
    return factory  # type: ignore[no-any-return]


def _environment_maker(request: Request) -> Callable[..., Any]:
    """The builder of the environment; a trained policy needs the wrappers with which it was trained."""
    if request.is_trained_policy:
        from headrace.cli.dqn import problem

        return problem.make
    return environments.make


def _collector(
    request: Request, make: Callable[..., Any], factory: Callable[[], Any] | None
) -> Collector | MultiCollector:
    kind: Callable[..., Collector | MultiCollector] = AsyncCollector if request.workers else Collector
    if request.workers > 1:  # Together, so that equal seeds give equal rows for any number of workers.
        kind = partial(MultiCollector, sync=True, num_workers=request.workers)
    return kind(
        make,
        policy_factory=factory,
        create_env_kwargs={"env_id": request.env_id},
        frames_per_batch=request.frames_per_batch,
        total_frames=request.total_frames,
        num_envs=request.num_envs,
        seed=request.seed,
    )


def _collect(
    collector: Collector | MultiCollector,
    steps: int,
    log: EpisodeLog,
    file: EpisodeFile | None,
    line: ProgressLine,
) -> None:
    begin = time.perf_counter()
    for batch in collector:
        rows = _in_order(batch, steps - log.frames)
        # First the file, so that it has every row that the log has counted, whenever Ctrl-C comes.
        if file is not None:
            file.append(rows)
        log.add(rows["episode_id"], rows["reward"], rows["terminated"], rows["truncated"])
        rate = log.frames / (time.perf_counter() - begin)
        line.show(log.frames, f"{rate:.0f} frames/s  {len(log.ended)} episodes")


def _in_order(batch: Batch, most: int) -> dict[str, Any]:
    """Returns the first transitions of a batch, in the order of collection; all columns except the mask."""
    steps, envs = (indices[:most] for indices in np.nonzero(batch["mask"].T))
    return {
        name: trees.map_leaves(lambda leaf: leaf[envs, steps], tree)
        for name, tree in batch.items()
        if name != "mask"
    }


def _result(request: Request, log: EpisodeLog, seconds: float) -> dict[str, Any]:
    return {
        "environment": request.env_id,
        "frames": log.frames,
        "seconds": round(seconds, 3),
        "frames_per_second": round(log.frames / seconds, 1),
        "episodes": len(log.ended),
        **episodes.spreads(log.ended),
        "unfinished": log.unfinished,
        "out": None if request.out is None else str(request.out),
        "files": []
        if request.out is None
        else [name for name in request.files if (request.out / name).exists()],
    }


def _print(result: dict[str, Any], *, as_json: bool) -> None:
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
    if "time" in result:
        time_shares.show_table(result["time"], result["frames"])
    if result["out"] is not None:
        click.echo(f"written to {result['out']}: {', '.join(result['files'])}")


def _notice(request: Request, log: EpisodeLog) -> str:
    """Returns the text after Ctrl-C."""
    if not log.frames:
        return "Aborted by Ctrl-C before anything was collected"
    kept = "" if request.out is None else f"; what was collected is in {request.out}"
    return f"Aborted by Ctrl-C after {log.frames} of {request.steps} frames{kept}"
