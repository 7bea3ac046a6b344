"""Runs a training, writes its files, and prints a summary."""

from __future__ import annotations

import dataclasses
import json
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from headrace.cli import episodes, interruption, output_folder, run_record, tables
from headrace.cli.dqn import checkpoint, curve, event_log, problem, saved_training
from headrace.cli.dqn.settings import IMAGE_SETTINGS, VECTOR_SETTINGS, DqnSettings
from headrace.cli.dqn.training import MEAN_OVER, Progress, Training
from headrace.cli.file_names import CURVE, EPISODES, POLICY, RESUME, RUN, TENSORBOARD
from headrace.cli.progress import ProgressLine
from headrace.errors import DeadlineExceeded, HeadraceError

# Seconds.
_SAVE_EVERY = 60.0


@dataclass(frozen=True, kw_only=True)
class Request:
    """The options of the command; see its help."""

    env_id: str
    steps: int
    seed: int
    out: Path | None
    overwrite: bool
    num_envs: int
    goal: float | None
    hyperparameters: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Shown:
    """The options of the command that may differ when a run goes on; see its help."""

    as_json: bool
    quiet: bool
    tensorboard: bool


def run(request: Request, shown: Shown) -> None:
    """Trains, writes the files, and prints the result.

    Raises:
        click.BadParameter: a DQN cannot learn the environment.
        click.UsageError: a hyperparameter is outside its range.
        ImportError: --tensorboard without tensorboardX.
        click.ClickException: files of an earlier run exist; Ctrl-C, after the files are written.
        Exception: the error that ended the run early, after the files are written.
    """
    if shown.tensorboard:
        event_log.writer_class()  # A missing library is told before anything is begun.
    found = problem.describe(request.env_id)
    settings = _settings(request, found)
    goal = found.reward_threshold if request.goal is None else request.goal
    with _folder(request) as folder:
        # Of the run that --overwrite replaces.
        for name in (RESUME, TENSORBOARD):
            shutil.rmtree(folder / name, ignore_errors=True)
        training = Training(
            found, settings, steps=request.steps, num_envs=request.num_envs, seed=request.seed, goal=goal
        )
        run_record.write(folder, environment=request.env_id, seed=request.seed)
        _run(training, folder, shown)


def resume(folder: Path, shown: Shown) -> None:
    """Goes on with a run, writes its files, and prints the result.

    Raises:
        click.BadParameter: the folder is not of a run that can go on.
        CheckpointError: the state of the run is damaged.
        click.ClickException, Exception: as `run`.
    """
    if not (folder / RESUME).is_dir():
        ended = (folder / POLICY).is_file()
        reason = "its run has ended" if ended else "no run of headrace train saved its state there"
        raise click.BadParameter(
            f"{folder}: {reason}, so there is nothing to go on with", param_hint="--resume"
        )
    if shown.tensorboard:
        event_log.writer_class()
    with output_folder.folder_for(folder, (), overwrite=False):
        saved, rows = saved_training.load(folder / RESUME)
        training = Training(
            problem.describe(saved.env_id),
            saved.settings,
            steps=saved.steps,
            num_envs=saved.num_envs,
            seed=saved.seed,
            goal=saved.goal,
            saved=(saved, rows),
        )
        _run(training, folder, shown)


def _folder(request: Request) -> AbstractContextManager[Path]:
    if request.out is not None:
        return output_folder.folder_for(
            request.out, (POLICY, CURVE, EPISODES, RUN, RESUME, TENSORBOARD), request.overwrite
        )
    name = request.env_id.replace("/", "-").replace(":", "-")
    return output_folder.new_folder(Path("out") / f"{name}-{request.seed}")


def _run(training: Training, folder: Path, shown: Shown) -> None:
    with training:
        stop: BaseException | None = None
        try:
            with _event_log(training, folder, shown) as events:
                final = _train(training, folder / RESUME, events, quiet=shown.as_json or shown.quiet)
        except (KeyboardInterrupt, Exception) as error:
            # The weights learnt so far are kept after any error.
            final, stop = training.progress(), error
        result = _result(training, final)
        with interruption.finishing("writing what was learnt"):
            files = _write(folder, training, result)
            if stop is None:
                shutil.rmtree(folder / RESUME, ignore_errors=True)
            elif isinstance(stop, KeyboardInterrupt):
                _save_for_later(training, folder / RESUME)
    if shown.as_json:
        click.echo(json.dumps({**result, **files}))
    else:
        _show(result, files)
    goes_on = f"; headrace train --resume {folder} goes on" if (folder / RESUME).is_dir() else ""
    interruption.raise_stop(
        stop,
        f"Aborted by Ctrl-C after {final.frames} of {training.arguments['steps']} frames; what was learnt is in "
        f"{folder}{goes_on}",
    )


def _save_for_later(training: Training, folder: Path) -> None:
    try:
        training.save(folder)
    except (HeadraceError, RuntimeError, OSError) as error:
        # The files of the run are written all the same; an earlier state stays.
        click.echo(f"The state of the run could not be saved for --resume: {error}", err=True)


def _settings(request: Request, found: problem.Problem) -> DqnSettings:
    if "frame_stack" in request.hyperparameters and not found.is_image:
        raise click.UsageError(
            f"--frame-stack is for images; the observations of {request.env_id} are vectors of {found.observation[0]}"
        )
    defaults = IMAGE_SETTINGS if found.is_image else VECTOR_SETTINGS
    try:
        return dataclasses.replace(defaults, **request.hyperparameters)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _event_log(
    training: Training, folder: Path, shown: Shown
) -> AbstractContextManager[event_log.EventLog | None]:
    return event_log.EventLog(folder / TENSORBOARD, training.log) if shown.tensorboard else nullcontext()


def _train(training: Training, state: Path, events: event_log.EventLog | None, *, quiet: bool) -> Progress:
    with ProgressLine(training.arguments["steps"], "frames", quiet=quiet) as line:
        final = training.run(_reporter(line, _Saver(training, state, line.warn), events))
    if events is not None:
        events.write(final)
    return final


class _Saver:
    """Saves a training now and then, so that a run that is killed loses little.

    Args:
        training: the training.
        folder: where its state is written.
        warn: called with a text where a save failed; the training goes on.
        clock: returns seconds.
    """

    def __init__(
        self,
        training: Training,
        folder: Path,
        warn: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._training, self._folder, self._warn, self._clock = training, folder, warn, clock
        self._next = clock() + _SAVE_EVERY

    def save_if_due(self) -> None:
        """Saves if a minute has passed; where a save takes long, at most a twentieth of the time is spent on it."""
        began = self._clock()
        if began < self._next:
            return
        try:
            self._training.save(self._folder)
        except (DeadlineExceeded, RuntimeError, OSError) as error:
            self._warn(f"the state of the run could not be saved for --resume; training goes on ({error})")
        ended = self._clock()
        self._next = ended + max(_SAVE_EVERY, 20 * (ended - began))


def _reporter(
    line: ProgressLine, saver: _Saver, events: event_log.EventLog | None
) -> Callable[[Progress], None]:
    def report(now: Progress) -> None:
        saver.save_if_due()
        if events is not None:
            events.write(now)
        number = tables.number
        line.show(
            now.frames,
            f"return {number(now.return_mean)}  {now.frames_per_second:.0f} frames/s  "
            f"samples/insert {number(now.samples_per_insert)} of {now.samples_per_insert_target:g}  "
            f"lag {now.policy_lag:.1f}  loss {number(now.loss)}",
        )

    return report


def _result(training: Training, final: Progress) -> dict[str, Any]:
    goal = training.goal
    reached = goal is not None and final.return_mean is not None and final.return_mean >= goal
    return {
        "environment": training.problem.env_id,
        "seed": training.arguments["seed"],
        "goal": goal,
        "goal_reached": reached,
        **dataclasses.asdict(final),
    }


def _write(out: Path, training: Training, result: dict[str, Any]) -> dict[str, str]:
    """Writes the files, and returns their paths by what they hold."""
    ended = training.log.ended
    files = {"checkpoint": str(out / POLICY), "episodes_file": str(out / EPISODES)}
    checkpoint.save(
        out / POLICY, training.policy, {"settings": dataclasses.asdict(training.settings), "result": result}
    )
    episodes.write_csv(out / EPISODES, ended)
    picture = out / CURVE
    try:
        curve.draw(
            picture, f"{result['environment']}, seed {result['seed']}", ended, MEAN_OVER, result["goal"]
        )
        files["curve"] = str(picture)
    except ImportError as error:
        # A training is not lost for want of a picture.
        click.echo(str(error), err=True)
    return files


def _show(result: dict[str, Any], files: Mapping[str, str]) -> None:
    goal = "none" if result["goal"] is None else f"{result['goal']:g}"
    reached = "reached" if result["goal_reached"] else "not reached"
    rows = [
        (f"return, mean of {MEAN_OVER} episodes", result["return_mean"]),
        ("goal", goal if result["goal"] is None else f"{goal}, {reached}"),
        ("frames", result["frames"]),
        ("episodes", result["episodes"]),
        ("updates", result["updates"]),
        ("seconds", result["seconds"]),
        ("frames/s", result["frames_per_second"]),
        (
            "samples per insert",
            f"{tables.number(result['samples_per_insert'])} of {result['samples_per_insert_target']:g}",
        ),
        ("policy lag", result["policy_lag"]),
        ("loss", result["loss"]),
        *((name.replace("_file", ""), path) for name, path in files.items()),
    ]
    tables.show(f"{result['environment']}, seed {result['seed']}", rows)
