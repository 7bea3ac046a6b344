"""Arguments and options that several commands have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

# How addresses of servers begin.
SERVER_SCHEMES = ("tcp://", "unix://")

env_argument = click.argument("env_id", metavar="ENV")
num_envs_option = click.option(
    "--num-envs",
    type=click.IntRange(min=1),
    default=8,
    show_default=True,
    help="Number of environments stepped side by side.",
)
overwrite_option = click.option(
    "--overwrite", is_flag=True, help="Replace the files of an earlier run in the folder."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object, and no progress.")
out_folder = click.Path(file_okay=False, path_type=Path)


def reading_options(function: Callable[..., None]) -> Callable[..., None]:
    """Adds the options for datasets whose files lack something that episodes need."""
    function = click.option(
        "--max-episode-steps",
        type=click.IntRange(min=1),
        help="For a D4RL file without timeouts: the environment's limit, after which an episode is truncated.",
    )(function)
    return click.option(
        "--missing-final",
        type=click.Choice(["error", "drop", "repeat"]),
        help="For datasets that lack the last observation of each episode: refuse them, drop the last transitions, or "
        "repeat the last observation where an episode terminates.  [default: repeat for LeRobot, error for others]",
    )(function)


def given(**arguments: Any) -> dict[str, Any]:
    """Returns the arguments that are not None: those that were given on the command line."""
    return {name: value for name, value in arguments.items() if value is not None}
