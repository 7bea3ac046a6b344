"""Priorities and windows that are given for the next call of a client's writer."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from headrace.leases.messages import packed
from headrace.replay.intake.selection import Selection
from headrace.server.messages.operations import Given

_NOTHING_SELECTED = Selection({}, {})
_FLAGS, _PRIORITIES = np.dtype(np.bool_), np.dtype("<f8")


class GivenForCall:
    """Keeps them until the call takes them; see `WriterLike.give_priorities` and `WriterLike.select_windows`.

    Attributes:
        priorities: maps numbers of rules to float64[m].
        selection: of windows.
    """

    def __init__(self) -> None:
        self.priorities: Mapping[int, NDArray[np.float64]] = {}
        self.selection = _NOTHING_SELECTED

    @property
    def selects_rows(self) -> bool:
        """Whether the call makes items of selected windows."""
        return any(mask.any() for mask in self.selection.rows.values())

    def take(self) -> Given | None:
        """Returns what was given, as it travels, and forgets it; None: nothing was."""
        if not self.priorities and self.selection is _NOTHING_SELECTED:
            return None
        given = Given(
            priorities={rule: packed(values, _PRIORITIES) for rule, values in self.priorities.items()},
            rows={rule: packed(mask, _FLAGS) for rule, mask in self.selection.rows.items()},
            finals={rule: packed(mask, _FLAGS) for rule, mask in self.selection.finals.items()},
        )
        self.priorities, self.selection = {}, _NOTHING_SELECTED
        return given
