"""`headrace train ENV`: a small DQN on the whole path."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from headrace.cli.dqn.settings import IMAGE_SETTINGS, VECTOR_SETTINGS, DqnSettings

_TYPES = {"int": int, "float": float}


def _hyperparameters(function: Callable[..., None]) -> Callable[..., None]:
    """One option for each field of `DqnSettings`."""
    for field in reversed(dataclasses.fields(DqnSettings)):
        vector, image = getattr(VECTOR_SETTINGS, field.name), getattr(IMAGE_SETTINGS, field.name)
        shown = f"{vector}" if vector == image else f"{vector}; images {image}"
        function = click.option(
            f"--{field.name.replace('_', '-')}",
            type=_TYPES[str(field.type)],
            help=f"{field.metadata['help']}  [default: {shown}]",
        )(function)
    return function


@click.command("train")
@click.argument("env_id", metavar="ENV")
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
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for policy.pt, learning-curve.png and episodes.csv.  [default: a new one, ./out/ENV-SEED]",
)
@click.option("--overwrite", is_flag=True, help="Replace the files of an earlier run in --out.")
@click.option(
    "--num-envs", type=click.IntRange(min=1), default=8, show_default=True, help="Copies of the environment."
)
@click.option(
    "--goal",
    type=float,
    help="Stop when the mean return of the last 20 episodes reaches it.  [default: what ENV is registered with]",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, and no progress.")
@click.option("--quiet", is_flag=True, help="Print no progress.")
@_hyperparameters
def command(
    env_id: str,
    steps: int,
    seed: int,
    out: Path | None,
    overwrite: bool,
    num_envs: int,
    goal: float | None,
    as_json: bool,
    quiet: bool,
    **hyperparameters: Any,
) -> None:
    """Train a DQN on the Gymnasium environment ENV (Discrete actions).

    One worker process collects into the learner's prioritized replay; weights flow back with versions. Returns are
    those of the acting policy, its epsilon included. Ctrl-C stops early and keeps what was learnt.

    \b
      headrace train CartPole-v1
      headrace train ALE/Pong-v5 --steps 2000000
    """  # noqa: D301 - click reads this backspace
    # What is heavy is loaded when it is needed, so that --help is quick.
    from headrace.cli import train_run

    given = {name: value for name, value in hyperparameters.items() if value is not None}
    train_run.run(
        train_run.Request(
            env_id=env_id,
            steps=steps,
            seed=seed,
            out=out,
            overwrite=overwrite,
            num_envs=num_envs,
            goal=goal,
            hyperparameters=given,
        ),
        as_json=as_json,
        quiet=quiet,
    )
