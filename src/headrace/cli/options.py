"""Arguments and options that several commands have."""

from __future__ import annotations

from pathlib import Path

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
authorities_option = click.option(
    "--ca",
    "authorities",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="For a server with TLS: a PEM file of the certificates that are trusted.",
)
