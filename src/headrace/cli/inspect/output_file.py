"""Files that `headrace inspect` writes: their errors, and where they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Turns errors of writing a file into one line that names it.

    Raises:
        click.ClickException: the file could not be written.
    """
    try:
        yield
    except (OSError, ValueError) as error:
        raise click.ClickException(f"{path}: {error}") from error


def tell(*paths: Path | None) -> None:
    """Prints where the files are that were asked for."""
    written = [str(path) for path in paths if path is not None]
    if written:
        click.echo(f"written to {', '.join(written)}")
