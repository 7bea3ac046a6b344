"""`headrace train ENV`: trains a small DQN."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import click

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
@options.env_argument
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
    help="Folder for policy.pt, learning-curve.png and episodes.csv.  [default: a new one, ./out/ENV-SEED]",
)
@options.overwrite_option
@options.num_envs_option
@click.option(
    "--goal",
    type=float,
    help="Stop when the mean return of the last 20 episodes reaches it.  "
    "[default: the reward threshold with which ENV is registered]",
)
@options.json_option
@click.option("--quiet", is_flag=True, help="Print no progress.")
@_hyperparameters
def command(as_json: bool, quiet: bool, **request: Any) -> None:
    """Train a DQN on the Gymnasium environment ENV (Discrete actions).

    One worker process collects into the learner's prioritized replay, and gets new weights from the learner. Returns
    are those of the acting policy, its epsilon included. Ctrl-C stops early and keeps the weights.

    \b
      headrace train CartPole-v1
      headrace train ALE/Pong-v5 --steps 2000000
    """  # noqa: D301 - click reads this backspace
    from headrace.cli.train.run import Request, run

    given = {field.name: request.pop(field.name) for field in _HYPERPARAMETERS}
    hyperparameters = {name: value for name, value in given.items() if value is not None}
    run(Request(**request, hyperparameters=hyperparameters), as_json=as_json, quiet=quiet)
