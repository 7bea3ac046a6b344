"""The table of a call that names none: the only one that there is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def only_table(call: str, names: Sequence[str]) -> str:
    """Returns the name of the only table.

    Args:
        call: which names no table, for the message.
        names: of the tables of the replay.

    Raises:
        ValueError: there are several.

    >>> only_table("sample", ["replay"])
    'replay'
    """
    if len(names) != 1:
        raise ValueError(
            f"{call}: expected the name of a table, since there are several ({', '.join(map(repr, names))}), got none"
        )
    return names[0]


def table_and_size(names: Sequence[str], table: Any, batch_size: Any) -> tuple[str, Any]:
    """Returns the table and the batch size of a call of `sample`, which may leave the only table out.

    Args:
        names: of the tables of the replay.
        table: its name; or None; or the batch size.
        batch_size: None if it is in `table`.

    Raises:
        TypeError: no batch size.
        ValueError: no name, and there are several tables.

    >>> table_and_size(["replay"], 256, None), table_and_size(["a", "b"], "b", 256)
    (('replay', 256), ('b', 256))
    """
    if batch_size is None:
        table, batch_size = None, table
    if batch_size is None or isinstance(batch_size, str):
        given = "nothing" if batch_size is None else f"only the table {batch_size!r}"
        raise TypeError(f"sample: expected a batch size, got {given}; write replay.sample(table, batch_size)")
    return only_table("sample", names) if table is None else table, batch_size
