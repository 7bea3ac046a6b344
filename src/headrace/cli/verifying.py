"""What `headrace inspect --verify` does."""

from __future__ import annotations

import json
from pathlib import Path

import click


def run(name: str, *, as_json: bool) -> None:
    """Compares the rows of a store with their checksums, and prints how many there are.

    Raises:
        click.BadParameter: it is not the folder of a store.
        CheckpointError: the store is damaged, with the file and the place in it.
    """
    from headrace.replay.stored import StoredReplay, is_store

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
