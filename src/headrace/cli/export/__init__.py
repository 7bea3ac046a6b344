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
@options.json_option
def command(as_json: bool, **request: Any) -> None:
    """Write the episodes of SOURCE in another format: all of them, or nothing.

    SOURCE is an npz or Parquet file, the folder or the id of a Minari dataset, a folder of headrace collect, or the
    folder of a replay on disk or of its checkpoints. Only complete episodes of a replay are written.

    \b
      headrace export out/cartpole --to parquet --out cartpole.parquet
      headrace export checkpoints/run-7 --to minari --id cartpole/expert-v0
      headrace export cartpole/expert-v0 --to parquet --out expert.parquet
    """  # noqa: D301 - click reads this backspace
    from headrace.cli.export.run import Request, run

    run(Request(**request), as_json=as_json)
