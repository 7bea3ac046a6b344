"""`headrace doctor`: examines the installation or an environment, and explains what does not fit."""

from __future__ import annotations

import click

from headrace.cli import options


@click.command("doctor")
@click.argument("env_id", metavar="[ENV]", required=False)
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="Steps to take with random actions.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the resets.")
@click.option(
    "--env-device",
    metavar="DEVICE",
    help="Torch device given to FACTORY(device=...), and to the environment's actions.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="Seconds that a call of the environment may take.",
)
@options.json_option
def command(
    env_id: str | None, steps: int, seed: int, env_device: str | None, timeout: float, as_json: bool
) -> None:
    """Examine an environment or, without ENV, the installation.

    Of an environment it examines spaces, resets, flags, seeds, infos and speed. ENV is the id of a registered
    Gymnasium environment, or MODULE:FACTORY. FACTORY() returns an environment of any kind that collectors take.
    Each finding says what is wrong and how to correct it. Output of the environment goes to stderr. It is examined
    in a process of its own, which it may end. The exit code is 1 if there is an error; warnings leave it 0.

    \b
      headrace doctor
      headrace doctor CartPole-v1
      headrace doctor my_package.envs:make_level_3 --steps 5000
    """  # noqa: D301 - click reads this backspace
    from headrace.cli.doctor.commands import run_on_environment, run_on_installation

    if env_id is None:
        run_on_installation(as_json=as_json)
    else:
        run_on_environment(
            env_id, steps=steps, seed=seed, env_device=env_device, timeout=timeout, as_json=as_json
        )
