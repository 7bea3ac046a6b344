"""`headrace inspect PATH`: shows the episodes of a dataset, a saved replay or a training run."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("inspect")
@click.argument("source", metavar="PATH")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with every episode.")
@click.option(
    "--png",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Draw the returns to this file and, for images, a contact sheet.",
)
@click.option(
    "--verify",
    is_flag=True,
    help="Compare all rows of a replay on disk with their checksums, and print only the result.",
)
def command(source: str, as_json: bool, png: Path | None, verify: bool) -> None:
    """Show the contents of a dataset: its episodes, their returns and lengths, and the arrays of a step.

    PATH is an npz or Parquet file, the folder or the id of a Minari dataset, a folder of headrace collect or
    headrace train, or the folder of a replay on disk or of its checkpoints. Nothing is changed.

    \b
      headrace inspect out/cartpole
      headrace inspect expert.parquet
      headrace inspect cartpole/expert-v0 --png expert.png
      headrace inspect runs/store --verify
    """  # noqa: D301 - click reads this backspace
    if verify:
        from headrace.cli.inspect.verify import verify_store

        verify_store(source, as_json=as_json)
        return
    from headrace.cli.inspect.run import run

    run(source, as_json=as_json, png=png)
