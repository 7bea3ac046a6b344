"""`headrace collect ENV`: runs an environment with a policy, and keeps the episodes."""

from __future__ import annotations

from typing import Any

import click

from headrace.cli import options
from headrace.system import is_linux


@click.command("collect")
@options.env_argument
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    required=True,
    help="Frames to collect, of all environments together.",
)
@click.option(
    "--workers",
    type=click.IntRange(0),
    default=lambda: int(is_linux()),
    show_default="1; 0 where only this process can collect",
    help="Worker processes, each with NUM_ENVS environments; 0 collects in this process.",
)
@options.num_envs_option
@click.option(
    "--policy",
    default="random",
    show_default=True,
    metavar="random|MODULE:FACTORY|FILE",
    help="FACTORY() is called in the worker. It returns a callable from observations [n, ...] to actions [n, ...]. "
    "FILE is a policy.pt of headrace train, which acts greedily.",
)
@click.option(
    "--out",
    type=options.out_folder,
    help="Folder for episodes.npz, a dataset (headrace inspect shows it), episodes.csv and run.json.",
)
@options.overwrite_option
@click.option(
    "--profile",
    is_flag=True,
    help="Print where the time went; with --out also write Chrome traces, profile_0.json, and profile.png.",
)
@click.option("--seed", type=click.IntRange(min=0), help="Environment k gets SEED + k.")
@options.json_option
def command(as_json: bool, **request: Any) -> None:
    """Collect episodes from an environment.

    ENV is the id of a Gymnasium environment. Returns and lengths of the episodes are printed.

    \b
      headrace collect CartPole-v1 --steps 10000
      headrace collect ALE/Pong-v5 --steps 5000 --out out/pong --seed 1
      headrace inspect out/pong
      headrace collect CartPole-v1 --policy out/CartPole-v1-0/policy.pt --out out/expert
      headrace collect CartPole-v1 --steps 10000 --profile --out out/cartpole
    """  # noqa: D301 - click reads this backspace
    from headrace.cli.collect.run import Request, run

    run(Request(**request), as_json=as_json)
