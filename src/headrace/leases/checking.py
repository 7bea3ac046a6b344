"""Checks of a writer's commits, before anything relies on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import Disconnected
from headrace.leases.messages import POLICY_VERSIONS, ROWS, Commit, unpacked
from headrace.store.block import WrittenSteps

Rows = NDArray[np.int64]

_NO_ROWS: Rows = np.empty(0, np.int64)
_NO_ROWS.setflags(write=False)


class LeaseError(RuntimeError):
    """A peer broke the lease protocol; its message changed nothing."""


class MissingMessages(LeaseError):
    """Messages of a peer did not arrive: it may connect again and send them again."""


class CheckedCommit:
    """A commit that continues the commits before it.

    Args:
        commit: as it was received.
        capacity: number of vector steps that still fit into its page.
        lane_steps: [lanes], number of steps of the episode under way in each lane; 0: there is none.
        next_finals: returns the next free final rows: the number asked for, or fewer if there are no more.

    Attributes:
        written: the steps.
        cut: int64[c], lanes whose episodes end after them.
        final_rows: int64[m + c].

    Raises:
        LeaseError: it does not continue them.
    """

    def __init__(
        self,
        commit: Commit,
        capacity: int,
        lane_steps: NDArray[np.uint32],
        next_finals: Callable[[int], Rows],
    ) -> None:
        steps, lanes = commit.steps, len(lane_steps)
        if not 0 <= steps <= capacity:
            raise LeaseError(f"steps: expected 0 to {capacity}, got {steps}")
        versions = _array(commit.versions, "versions", POLICY_VERSIONS)
        if len(versions) not in (steps, steps * lanes):
            raise LeaseError(
                f"versions: expected {steps}, one a step, or {steps * lanes}, one a row, got {len(versions)}"
            )
        final = _rising(commit.final, "final", steps * lanes)
        idle = _rising(commit.idle, "idle", steps * lanes)
        ended = _rising(commit.ended, "ended", steps * lanes)
        self.cut = _rising(commit.cut, "cut", lanes)
        if not steps and not self.cut.size:
            raise LeaseError("steps: expected some, or lanes whose episodes are cut")
        if self.cut.size or final.size or idle.size or ended.size:
            is_open = _open_after(steps, lane_steps > 0, final, idle, ended)
            if not is_open[self.cut].all():
                raise LeaseError("cut: expected lanes with an episode under way")
        self.final_rows = _array(commit.final_rows, "final_rows", ROWS) if commit.final_rows else _NO_ROWS
        count = len(ended) + len(self.cut)
        if len(self.final_rows) != count:
            raise LeaseError(f"final_rows: expected {count}, got {len(self.final_rows)}")
        if count and not np.array_equal(self.final_rows, next_finals(count)):
            raise LeaseError("final_rows: expected the next rows of the pages that are leased for final rows")
        self.written = WrittenSteps(
            commit.page, steps, final, idle, ended, self.final_rows[: len(ended)], versions
        )


def _array(data: bytes, name: str, dtype: np.dtype[Any]) -> NDArray[Any]:
    try:
        return unpacked(data, name, dtype)
    except Disconnected as error:
        raise LeaseError(str(error)) from error


def _rising(data: bytes, name: str, stop: int) -> Rows:
    if not data:
        return _NO_ROWS
    values: Rows = _array(data, name, ROWS)
    if values[0] < 0 or values[-1] >= stop or not (values[1:] > values[:-1]).all():
        raise LeaseError(f"{name}: expected rising numbers from 0 to {stop - 1}")
    return values


def _open_after(
    steps: int, is_open: NDArray[np.bool_], final: Rows, idle: Rows, ended: Rows
) -> NDArray[np.bool_]:
    """Returns whether an episode is under way in each lane after these steps, bool[lanes].

    Raises:
        LeaseError: a row is named twice, a lane is idle in the middle of an episode, or has a final row without one.
    """
    marked = len(final) + len(idle) + len(ended)
    if not steps:
        return is_open
    if not marked:
        return np.ones_like(is_open)
    flat = np.zeros(steps * len(is_open), np.bool_)
    for rows in (final, idle, ended):
        flat[rows] = True
    if np.count_nonzero(flat) != marked:
        raise LeaseError("final, idle, ended: expected different rows")
    closes = flat.reshape(steps, -1)
    if final.size or idle.size:
        closed = np.concatenate([~is_open[None], closes[:-1]]).reshape(-1)
        if not closed[idle].all():
            raise LeaseError("idle: expected lanes without an episode under way")
        if closed[final].any():
            raise LeaseError("final: expected lanes with an episode under way")
    after: NDArray[np.bool_] = ~closes[-1]
    return after
