"""Chunks for recurrent learners: burn-in rows, rows to learn from, and the stored state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.checks import check_count
from headrace.views.view import View

_COLUMNS = ("observation", "action", "reward", "terminated", "truncated")


@dataclass(frozen=True, eq=False, repr=False)
class StateView(View):
    """The state with which the policy acted at a row; made by `recurrent`."""

    @property
    def is_known_before_acting(self) -> bool:
        """Always True, also for a column whose name does not begin with "state_in_"."""
        return True


def recurrent(
    length: int, burn_in: int = 0, *, state: str | Sequence[str] = (), columns: Sequence[str] = _COLUMNS
) -> dict[str, View]:
    """Returns the views of a chunk that begins at an item's row: `burn_in` rows before it, `length` rows from it on.

    Each column is `[B, burn_in + length, ...]`, with a mask `<column>_mask`: True where it has a value. A learner runs
    over `data["observation"][:, :burn_in]` first, and learns from `data["observation"][:, burn_in:]`. Each state is
    `[B, ...]`, the state of the chunk's first real row. Where the mask is False a learner keeps its state unchanged; at
    the start of an episode those rows come first.

    The items are the rows where chunks begin: `ItemRule(table, 1, stride=length, lookahead=length - 1)`. So each step
    is learned from, also at the start of an episode, and another burn-in needs no new data. Rows before an item are
    held by their own items. When these are gone, the rows are unknown, and the stored state is that of the oldest row
    left.

    Args:
        length: number of rows to learn from. Add n for n-step targets, which need the observations after them.
        burn_in: number of rows before these.
        state: one column or several of the state with which the policy acted at a row, such as "state_in_h".
        columns: the other columns.

    Raises:
        ValueError: length < 1, burn_in < 0, or a state that is among the columns.
        TypeError: a number is not an integer, or `columns` is one string.

    Source: S. Kapturowski et al., "Recurrent Experience Replay in Distributed Reinforcement Learning" (2019): stored
    state and burn-in. In the paper the burn-in belongs to the item, and the first steps of an episode are never learned
    from.

    >>> list(recurrent(20, burn_in=10, state="state_in", columns=["observation", "action"]))
    ['observation', 'action', 'state_in']
    >>> recurrent(20, burn_in=10)["reward"]
    View('reward', shift='-10:19', every=20, mask=True)
    """
    length = check_count("length", length, 1)
    burn_in = check_count("burn_in", burn_in, 0)
    states = [state] if isinstance(state, str) else list(state)
    if isinstance(columns, str):
        raise TypeError(f"columns: expected a list of columns, got the string {columns!r}")
    if both := [column for column in states if column in columns]:
        raise ValueError(
            f"state: expected other columns than those that are shown row by row, got {', '.join(both)} in both; "
            "columns= says which these are"
        )
    shift = f"{-burn_in}:{length - 1}"
    return {
        **{column: View(column, shift=shift, every=length, mask=True) for column in columns},
        # There are no rows before the start of an episode: the state is then that of its first row.
        **{column: StateView(column, shift=-burn_in, every=length, fill="edge") for column in states},
    }
