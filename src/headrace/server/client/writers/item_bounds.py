"""The items that a step, or the end of an episode, makes at the server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

import numpy as np
from numpy.typing import NDArray

from headrace.ends import EndOfEpisode
from headrace.replay.intake.selection import Selection
from headrace.server.client.writers.lane_lengths import LaneLengths, Lanes
from headrace.tables.description.rules import ItemRule, PatternWindow, Rule, WholeEpisodes
from headrace.trajectories.windows import closing_windows, regular_windows


class ItemBounds:
    """Counts the items of each call by the closed form of the rules.

    The count is exact, and an upper bound in lanes whose stream may have been interrupted (`StreamLengths.is_unknown`).

    Args:
        rules: of a writer.

    >>> import headrace as hr
    >>> lengths, bounds = LaneLengths.of(3), ItemBounds([hr.ItemRule("t", length=2, stride=2)])
    >>> nothing = Selection({}, {})
    >>> for _ in range(4):
    ...     print(bounds.of_step(lengths, nothing), end=" ")
    ...     lengths = lengths.after_step()
    0 3 0 3
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = list(enumerate(rules))
        # The first row that completes a window, and the rows from one to the next.
        self._windows = [
            (rule.length + rule.lookahead - 1, rule.stride)
            for rule in rules
            if isinstance(rule, ItemRule) and not is_stream(rule)
        ]
        self._streams = [rule for rule in rules if is_stream(rule)]

    def of_step(
        self, lengths: LaneLengths, selection: Selection, idle: NDArray[np.bool_] | None = None
    ) -> int:
        """Returns the number of items that a step makes before episodes end.

        Args:
            lengths: of the lanes before it.
            selection: of windows of the call.
            idle: bool[N], lanes without a step; None: every lane has one.
        """
        rows = lengths.open
        count = 0
        for first, stride in self._windows:
            if len(rows) == 1 and idle is None:
                past = int(rows[0]) - first
                count += past >= 0 and past % stride == 0
            else:
                count += _number(_is_complete(rows - first, stride), idle)
        for rule in self._streams:
            count += _number(_completes_stream(lengths, rule, slice(None)), idle)
        for mask in selection.rows.values():
            count += int(np.count_nonzero(mask))
        return count

    def of_ends(
        self,
        lengths: LaneLengths,
        selection: Selection,
        lanes: Lanes,
        final_rows: int,
        *,
        steps: int = 0,
        end: EndOfEpisode | None = None,
    ) -> int:
        """Returns the number of items that the ends of episodes make, beside those of the step before.

        Args:
            lengths: of the lanes before the call.
            selection: of windows of the call.
            lanes: in which episodes end.
            final_rows: 1 with final rows, 0 without.
            steps: of the same call, 1 or 0, which are not counted in the lengths yet.
            end: replaces the ends of the rules; None keeps them.
        """
        rows = (lengths.open[lanes] + steps).tolist()
        count = 0
        for number, rule in self._rules:
            if isinstance(rule, PatternWindow):
                mask = selection.finals.get(number)
                count += 0 if mask is None or not final_rows else int(np.count_nonzero(mask[lanes]))
            elif isinstance(rule, WholeEpisodes):
                count += sum(each + final_rows <= rule.length for each in rows)
            elif is_stream(rule):
                is_longer = final_rows and rule.length > 1
                count += _number(_completes_stream(lengths, rule, lanes, steps), None) if is_longer else 0
            else:
                count += sum(_closing(rule, each, final_rows, end or rule.end) for each in rows)
        return count


def is_stream(rule: Rule) -> TypeGuard[ItemRule]:
    """Returns whether the windows of a rule go on over the ends of episodes."""
    return isinstance(rule, ItemRule) and rule.end is EndOfEpisode.CONTINUE


def _completes_stream(
    lengths: LaneLengths, rule: ItemRule, lanes: Lanes | slice, steps: int = 0
) -> NDArray[np.bool_]:
    """Returns for some lanes whether a row after `steps` more completes a window over the ends of episodes."""
    streams = lengths.streams
    counted = streams.steps if rule.length == 1 else streams.rows
    past = counted[lanes] + (steps + 1 - rule.length)
    return _is_complete(past, rule.stride) | streams.is_unknown[lanes]


def _is_complete(past: NDArray[np.int64], stride: int) -> NDArray[np.bool_]:
    complete: NDArray[np.bool_] = (past >= 0) & (past % stride == 0)
    return complete


def _number(mask: NDArray[np.bool_], idle: NDArray[np.bool_] | None) -> int:
    return int(np.count_nonzero(mask if idle is None else mask & ~idle))


def _closing(rule: ItemRule, steps: int, final_rows: int, end: EndOfEpisode) -> int:
    """Returns the number of windows that an episode of `steps` steps has beyond those that its steps completed."""
    # No transition starts at a final row (trajectories W6).
    rows = steps if rule.length == 1 else steps + final_rows
    completed = regular_windows(steps, rule.length + rule.lookahead, rule.stride)
    if rule.stride > rule.length and end in (EndOfEpisode.PAD, EndOfEpisode.TRUNCATE):
        # An end that replaces that of the rule; every stride begins a window.
        return -(-rows // rule.stride) - completed
    closing = len(closing_windows(rows, rule.length, rule.stride, end))
    return regular_windows(rows, rule.length, rule.stride) + closing - completed
