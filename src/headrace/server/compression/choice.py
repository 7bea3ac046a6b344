"""The columns that are compressed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from headrace.server.compression import zstd

CompressionChoice: TypeAlias = str | Mapping[str, str] | None
_CODEC = "zstd"


@dataclass(frozen=True)
class CompressedColumns:
    """Columns that travel compressed between machines.

    Attributes:
        paths: of columns, or of trees of columns; "" stands for all.

    >>> columns = CompressedColumns(("observation",))
    >>> columns.has("observation"), columns.has("observation/camera"), columns.has("observations")
    (True, True, False)
    """

    paths: tuple[str, ...]

    def has(self, column: str) -> bool:
        """Whether a column is one of them."""
        return any(not path or column == path or column.startswith(f"{path}/") for path in self.paths)

    def check_known(self, columns: Iterable[str], peer: str) -> None:
        """Checks that each path is that of a column of the server.

        Raises:
            ValueError: one is not.
        """
        known = list(columns)
        for path in self.paths:
            if path and not any(CompressedColumns((path,)).has(column) for column in known):
                raise ValueError(
                    f"compression: {peer} has no column {path!r}; there are {', '.join(map(repr, known)) or 'none'}"
                )


def compressed_columns(choice: CompressionChoice) -> CompressedColumns | None:
    """Returns the columns of the argument `compression` of a client; None: none.

    Raises:
        ImportError: zstd is not installed.
        TypeError, ValueError: not a choice.
    """
    if choice is None:
        return None
    codecs = {"": choice} if isinstance(choice, str) else choice
    if not isinstance(codecs, Mapping):
        raise TypeError(
            f"compression: expected {_CODEC!r}, or a dict from paths of columns to {_CODEC!r}, got "
            f"{type(choice).__name__}"
        )
    for path, codec in codecs.items():
        if not isinstance(path, str):
            raise TypeError(f"compression: expected paths of columns, got {path!r}")
        if codec != _CODEC:
            raise ValueError(f"compression: expected {_CODEC!r}, got {codec!r}")
    zstd.check_installed()
    return CompressedColumns(tuple(path.strip("/") for path in codecs)) if codecs else None
