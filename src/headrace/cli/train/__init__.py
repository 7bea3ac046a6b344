"""`headrace train ENV`: trains a small DQN."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from headrace.cli import options
from headrace.cli.dqn.settings import IMAGE_SETTINGS, VECTOR_SETTINGS, DqnSettings

_TYPES = {"int": int, "float": float}
_HYPERPARAMETERS = dataclasses.fields(DqnSettings)


def _hyperparameters(function: Callable[..., None]) -> Callable[..., None]:
    """Adds one option for each field of `DqnSettings`."""
    for field in reversed(_HYPERPARAMETERS):
        vector, image = getattr(VECTOR_SETTINGS, field.name), getattr(IMAGE_SETTINGS, field.name)
        shown = f"{vector}" if vector == image else f"{vector}; images {image}"
        function = click.option(
            f"--{field.name.replace('_', '-')}",
            type=_TYPES[str(field.type)],
            help=f"{field.metadata['help']}  [default: {shown}]",
        )(function)
    return function


@click.command("train")
@click.argument("env_id", metavar="[ENV]", required=False)
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    default=100_000,
    show_default=True,
    help="The most frames to collect; --num-envs are collected at a time.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option(
    "--out",
    type=options.out_folder,
    help="Folder for policy.pt, learning-curve.png, episodes.csv and run.json.  [default: a new one, ./out/ENV-SEED]",
)
@options.overwrite_option
@options.num_envs_option
@click.option(
    "--goal",
    type=float,
    help="Stop when the mean return of the last 20 episodes reaches it.  "
    "[default: the reward threshold with which ENV is registered]",
)
@click.option(
    "--resume",
    type=options.out_folder,
    metavar="FOLDER",
    help="Go on with the run that wrote FOLDER and has not ended; its own options hold, and no "
    "other is given but --json, --quiet and --tensorboard. "
    "Kept exactly: networks, optimizer, stored steps and priorities, counters, returns, random generators. Not kept: "
    "episodes under way (they begin anew, unless the environment has state_dict and load_state_dict), and the last "
    "few transitions that were not in the table yet.",
)
@click.option(
    "--tensorboard",
    is_flag=True,
    help="Write event files into the folder tensorboard of --out: the numbers of the progress line, and the return of "
    "each episode. Also with --resume. Needs the extra tensorboard.",
)
@options.json_option
@click.option("--quiet", is_flag=True, help="Print no progress.")
@_hyperparameters
@click.pass_context
def command(
    context: click.Context,
    /,
    as_json: bool,
    quiet: bool,
    tensorboard: bool,
    resume: Path | None,
    **request: Any,
) -> None:
    """Train a small DQN on an environment.

    ENV is the id of a Gymnasium environment with Discrete actions. One worker process collects into the learner's
    prioritized replay, and gets new weights from the learner. Returns are those of the acting policy, its epsilon
    included. Ctrl-C stops early and keeps the weights. The state of the run is saved about once a minute and after
    Ctrl-C, so that --resume goes on also after a crash.

    \b
      headrace train CartPole-v1
      headrace train ALE/Pong-v5 --steps 2000000
      headrace train --resume out/CartPole-v1-0
    """  # noqa: D301 - click reads this backspace
    from headrace.cli.train import run

    shown = run.Shown(as_json=as_json, quiet=quiet, tensorboard=tensorboard)
    if resume is not None:
        _refuse_others(context)
        run.resume(resume, shown)
        return
    if request["env_id"] is None:
        raise click.UsageError("expected ENV, or --resume FOLDER")
    given = {field.name: request.pop(field.name) for field in _HYPERPARAMETERS}
    hyperparameters = {name: value for name, value in given.items() if value is not None}
    run.run(run.Request(**request, hyperparameters=hyperparameters), shown)


def _refuse_others(context: click.Context) -> None:
    """Raises if an option was given that `--resume` keeps: a run goes on as it began."""
    for parameter in context.command.params:
        name = str(parameter.name)
        is_given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if is_given and name not in ("resume", "as_json", "quiet", "tensorboard"):
            shown = "ENV" if name == "env_id" else parameter.opts[0]
            raise click.UsageError(
                f"{shown} cannot be given with --resume: a run goes on with its own options"
            )
