"""`headrace export SOURCE --to FORMAT`: writes episodes of a dataset or a saved replay in another format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from headrace.cli import options


@click.command("export")
@click.argument("source")
@click.option("--to", type=click.Choice(["minari", "parquet", "npz"]), required=True, help="Format to write.")
@click.option("--id", "dataset_id", metavar="NAME-vN", help="Id of the Minari dataset.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="File to write; for Minari the folder of all datasets [default: Minari's own].",
)
@click.option("--overwrite", is_flag=True, help="Replace an existing dataset, once the new one is complete.")
@options.reading_options
@options.json_option
def command(as_json: bool, missing_final: str | None, max_episode_steps: int | None, **request: Any) -> None:
    """Write episodes in another format.

    All episodes are written, or nothing. SOURCE is an npz, Parquet or D4RL file, the folder of a Minari or LeRobot
    dataset, the id of a Minari dataset, a folder of headrace collect, or the folder of a replay on disk or of its
    checkpoints. Only complete episodes of a replay are written.

    \b
      headrace export out/cartpole --to parquet --out cartpole.parquet
      headrace export checkpoints/run-7 --to minari --id cartpole/expert-v0
      headrace export cartpole/expert-v0 --to parquet --out expert.parquet
      headrace export antmaze.hdf5 --missing-final repeat --to parquet --out antmaze.parquet
    """  # noqa: D301 - click reads this backspace
    from headrace.cli.export.run import Request, run

    reading = options.given(missing_final=missing_final, max_episode_steps=max_episode_steps)
    run(Request(**request, reading=reading), as_json=as_json)
