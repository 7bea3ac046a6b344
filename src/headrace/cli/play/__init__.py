"""`headrace play POLICY`: plays episodes with a trained policy."""

from __future__ import annotations

from pathlib import Path

import click

from headrace.cli import options


@click.command("play")
@click.argument("policy", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--env", "env_id", metavar="ENV", help="Another environment.  [default: the one it was trained on]"
)
@click.option(
    "--episodes", type=click.IntRange(min=1), default=10, show_default=True, help="Episodes to play."
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Episode k is reset with SEED + k.",
)
@click.option(
    "--epsilon",
    type=click.FloatRange(0, 1),
    default=0.0,
    show_default=True,
    help="Probability of a random action.",
)
@click.option("--video", type=options.out_folder, help="Folder for a video of each episode; needs moviepy.")
@options.overwrite_option
@options.json_option
def command(
    policy: Path,
    env_id: str | None,
    episodes: int,
    seed: int,
    epsilon: float,
    video: Path | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Play episodes with a trained policy.

    POLICY is a file of `headrace train`. Returns and lengths of the episodes are printed. The policy acts greedily,
    in one environment. The same seed plays the same episodes.

    \b
      headrace play out/CartPole-v1-0/policy.pt
      headrace play out/CartPole-v1-0/policy.pt --episodes 3 --video out/video
    """  # noqa: D301 - click reads this backspace
    from headrace.cli.play.run import Request, run

    request = Request(policy, env_id, episodes, seed, epsilon, video, overwrite)
    run(request, as_json=as_json)
