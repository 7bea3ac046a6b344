"""A loader's state as a plain dict."""

# Rules: loaders LT1 to LT4

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

_KEYS = ("table", "delivered", "batches")


def state_of(table: str, delivered: int, samples: list[Any]) -> dict[str, Any]:
    """Returns the state: the number of batches delivered, and the samples drawn beyond them."""
    return {"table": table, "delivered": delivered, "batches": samples}


def read_state(state: Any, table: str) -> tuple[int, list[Any]]:
    """Returns the number of batches delivered, and copies of the others: the learner may write into its batches.

    Raises:
        ValueError: not a state of a loader, or a state of another table.
    """
    if not isinstance(state, Mapping) or any(key not in state for key in _KEYS):
        raise ValueError(
            f"state: expected a dict with {', '.join(_KEYS)}, as state_dict gives, got {state!r:.80}"
        )
    if state["table"] != table:
        raise ValueError(f"state: expected that of table {table!r}, got that of table {state['table']!r}")
    return int(state["delivered"]), copy.deepcopy(list(state["batches"]))
