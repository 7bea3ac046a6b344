"""Compares the rows of a store with their checksums: `headrace inspect --verify`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from headrace.persist.disk.stored import StoredReplay, is_store


def verify_store(name: str, *, as_json: bool) -> None:
    """Reads all rows of a store, and prints how many pages have the right checksum.

    Raises:
        click.BadParameter: `name` is not the folder of a store.
        CheckpointError: the store is damaged; the text has the file and the place in it.
    """
    if not is_store(Path(name)):
        raise click.BadParameter(
            f"{name}: --verify reads the folder of a replay on disk (hr.Replay(path=folder))"
        )
    with StoredReplay(Path(name)) as stored:
        compared, unknown = stored.verify_rows()
    if as_json:
        click.echo(json.dumps({"path": name, "pages_verified": compared, "pages_without_checksum": unknown}))
        return
    click.echo(f"{name}: {compared} pages of rows are as they were when the store was closed")
    if unknown:
        click.echo(
            f"{unknown} pages were written since, by a process that was killed: they have no checksum until the store "
            "is opened and closed again"
        )
