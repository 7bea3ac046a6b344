"""`headrace export SOURCE --to FORMAT`: episodes from one format, or a saved replay, to another."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("export")
@click.argument("source")
@click.option(
    "--to", "to", type=click.Choice(["minari", "parquet", "npz"]), required=True, help="What to write."
)
@click.option("--id", "dataset_id", metavar="NAME-vN", help="Id of the Minari dataset.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="The file to write; for Minari the folder of all datasets [default: Minari's own].",
)
@click.option("--overwrite", is_flag=True, help="Replace what is there, once the new one is complete.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, and no progress.")
def command(
    source: str, to: str, dataset_id: str | None, out: Path | None, overwrite: bool, as_json: bool
) -> None:
    """Write the episodes of SOURCE in another format: all of them, or nothing.

    SOURCE is an npz or Parquet file, the folder or the id of a Minari dataset, a folder of headrace collect, or the
    folder of a replay on disk or of its checkpoints, whose complete episodes are written.

    \b
      headrace export out/cartpole --to parquet --out cartpole.parquet
      headrace export checkpoints/run-7 --to minari --id cartpole/expert-v0
      headrace export cartpole/expert-v0 --to parquet --out expert.parquet
    """  # noqa: D301 - click reads this backspace
    from headrace.cli import exporting

    request = exporting.Request(source=source, to=to, dataset_id=dataset_id, out=out, overwrite=overwrite)
    exporting.run(request, as_json=as_json)
