"""`headrace collect ENV`: run an environment with a policy, and keep what was collected."""

from __future__ import annotations

from pathlib import Path

import click

from headrace.system import is_linux


@click.command("collect")
@click.argument("env_id", metavar="ENV")
@click.option(
    "--steps", type=click.IntRange(min=1), required=True, help="Frames to collect, of all copies together."
)
@click.option(
    "--workers",
    type=click.IntRange(0, 1),
    default=lambda: int(is_linux()),
    show_default="1; 0 where only this process can collect",
    help="0 collects in this process.",
)
@click.option(
    "--num-envs", type=click.IntRange(min=1), default=8, show_default=True, help="Copies of the environment."
)
@click.option(
    "--policy",
    default="random",
    show_default=True,
    metavar="random|MODULE:FACTORY",
    help="FACTORY() gives a callable from observations [n, ...] to actions [n, ...]; it is called in the worker.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for episodes.npz, a dataset (headrace inspect shows it), and episodes.csv.",
)
@click.option("--overwrite", is_flag=True, help="Replace the files of an earlier run in --out.")
@click.option("--seed", type=click.IntRange(min=0), help="Copy k of the environment gets SEED + k.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, and no progress.")
def command(
    env_id: str,
    steps: int,
    workers: int,
    num_envs: int,
    policy: str,
    out: Path | None,
    overwrite: bool,
    seed: int | None,
    as_json: bool,
) -> None:
    """Collect episodes from the Gymnasium environment ENV and say how it went.

    \b
      headrace collect CartPole-v1 --steps 10000
      headrace collect ALE/Pong-v5 --steps 5000 --out out/pong --seed 1
      headrace inspect out/pong
    """  # noqa: D301 - click reads this backspace
    # What is heavy is loaded when it is needed, so that --help is quick.
    from headrace.cli import collecting

    collecting.run(
        collecting.Request(
            env_id=env_id,
            steps=steps,
            workers=workers,
            num_envs=num_envs,
            policy=policy,
            out=out,
            overwrite=overwrite,
            seed=seed,
        ),
        as_json=as_json,
    )
