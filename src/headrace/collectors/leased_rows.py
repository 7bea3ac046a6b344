"""A worker's side of a replay: it fills leased pages of the learner's own store, in place.

Only NumPy is needed here: a page is columns and one word of metadata a row (`store.layout`). What is written is nowhere
to be seen until the collector commits it, so a worker that dies in the middle of a step leaves no trace.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.collectors.channel import Lease, Rows
from headrace.envs.protocol import Autoreset, StepResult
from headrace.spec import Signature
from headrace.store.arena import Arena
from headrace.store.layout import FINAL, LINKED, STEP_HALF, STEP_MASK, plan

Columns = Mapping[str, NDArray[Any]]


class LeasedRows:
    """Where a loop writes when its rows belong to a replay in another process.

    Args:
        arena: the replay's, mapped here.
        signature, num_pages, page_rows: of its store.
        observed: names of the columns that an observation has.
        num_envs: n.
        need_page: waits for the next leased page: of rows, or of final rows.
    """

    def __init__(
        self,
        arena: Arena,
        signature: Signature,
        num_pages: int,
        page_rows: int,
        observed: frozenset[str],
        num_envs: int,
        need_page: Any,
    ) -> None:
        arrays = plan(signature, num_pages, page_rows).arrays(arena)
        self._columns: dict[str, NDArray[Any]] = {
            name: arrays[f"column:{name}"] for name in signature.columns
        }
        self._words: NDArray[np.uint32] = arrays["steps"]  # type: ignore[assignment]
        self._links: NDArray[np.uint32] = arrays["links"]  # type: ignore[assignment]
        self._versions: NDArray[np.int32] = arrays["versions"]  # type: ignore[assignment]
        self._observed = [name for name in signature.columns if name in observed]
        self._others = [name for name in signature.columns if name not in observed]
        self._num_envs = num_envs
        self._page_rows = page_rows
        self._steps_in_page = page_rows // num_envs
        self._need_page = need_page
        self._page, self._step = -1, self._steps_in_page
        self._ahead: tuple[int, int] | None = None
        self._finals_page, self._finals_used = -1, page_rows
        self._lane_steps = np.zeros(num_envs, np.uint32)
        self._returns = np.zeros(num_envs)
        self._lengths = np.zeros(num_envs, np.int64)
        self._begin_report()

    def _begin_report(self) -> None:
        self._new_steps = self._new_finals = self._new_ends = self._new_frames = 0
        self._episodes: list[tuple[float, int]] = []
        self._least, self._sum, self._greatest = 1 << 60, 0.0, -(1 << 60)

    # ---- what the loop asks ----------------------------------------------------------------------------------------

    def first_row(self) -> Columns:
        """Where the observations of a reset are to be written: the next row."""
        if self._step == self._steps_in_page:
            self._page, self._step = self._ahead or (self._need_page(False), 0)
            self._ahead = None
        return self.row

    @property
    def row(self) -> Columns:
        """The observations of the step that comes next."""
        return self._row(self._page, self._step)

    @property
    def next_row(self) -> Columns:
        """Where the observations that follow are to be written; in the next page where this one ends."""
        if self._step + 1 < self._steps_in_page:
            return self._row(self._page, self._step + 1)
        if self._ahead is None:
            self._ahead = (self._need_page(False), 0)
        return self._row(*self._ahead)

    def _row(self, page: int, step: int) -> dict[str, NDArray[Any]]:
        first = page * self._page_rows + step * self._num_envs
        return {name: self._columns[name][first : first + self._num_envs] for name in self._observed}

    def record(
        self, actions: Columns, extras: Columns, result: StepResult, autoreset: Autoreset, version: int
    ) -> None:
        """Write what was done at this step and what followed."""
        first = self._page * self._page_rows + self._step * self._num_envs
        rows = slice(first, first + self._num_envs)
        given = {**actions, **extras, "reward": result.reward}
        given["terminated"], given["truncated"] = result.terminated, result.truncated
        for name in self._others:
            self._columns[name][rows] = given.get(name, 0)
        words = self._words[rows]
        words[:] = self._lane_steps
        self._lane_steps += np.uint32(1)
        self._returns += result.reward
        self._lengths += 1
        self._versions[self._page * self._page_rows + self._step] = version
        self._new_frames += self._num_envs
        if result.reset_steps.size:
            self._finish_in_lane(result, first, words)
        if result.ended.size:
            self._finish(result, first, in_lane=autoreset is Autoreset.NEXT_STEP)
        if int(self._lane_steps.max()) > STEP_MASK:
            self._lane_steps[self._lane_steps > STEP_MASK] = STEP_HALF
        self._count(version)

    def _count(self, version: int) -> None:
        self._new_steps += 1
        self._step += 1
        self._least, self._greatest = min(self._least, version), max(self._greatest, version)
        self._sum += version

    def _finish_in_lane(self, result: StepResult, first: int, words: NDArray[np.uint32]) -> None:
        """NEXT_STEP: the rows of copies that were just reset are the final rows of their old episodes."""
        copies = result.reset_steps
        words[copies] |= np.uint32(FINAL)
        for name in self._others:
            self._columns[name][first + copies] = 0
        self._lane_steps[copies] = 0
        self._returns[copies] = 0.0
        self._lengths[copies] = 0
        self._new_ends += len(copies)
        self._new_frames -= len(copies)

    def _finish(self, result: StepResult, first: int, *, in_lane: bool) -> None:
        copies = result.ended
        self._episodes += zip(self._returns[copies].tolist(), self._lengths[copies].tolist(), strict=True)
        if in_lane:
            return  # The row of the reset step will be the final one.
        for copy in copies.tolist():
            self._write_final(copy, first + copy, result.last_observation)
        self._lane_steps[copies] = 0
        self._returns[copies] = 0.0
        self._lengths[copies] = 0
        self._new_ends += len(copies)

    def _write_final(self, copy: int, last: int, observations: Columns) -> None:
        if self._finals_used == self._page_rows:
            self._finals_page, self._finals_used = self._need_page(True), 0
        final = self._finals_page * self._page_rows + self._finals_used
        for name in self._observed:
            self._columns[name][final] = observations[name][copy]
        for name in self._others:
            self._columns[name][final] = 0
        self._words[final] = self._lane_steps[copy] | np.uint32(FINAL)
        self._words[last] |= np.uint32(LINKED)
        self._links[last] = final + 1
        self._links[final] = last + 1
        self._finals_used += 1
        self._new_finals += 1

    # ---- what the worker asks --------------------------------------------------------------------------------------

    @property
    def page_is_full(self) -> bool:
        """Whether the page has no room for another step."""
        return self._step == self._steps_in_page

    def report(self, *, closes_rollout: bool, times: tuple[float, float, float], cut: bool = False) -> Rows:
        """What was written since the last report; turns to the page ahead when this one is full."""
        message = Rows(
            page=self._page,
            steps=self._new_steps,
            finals=self._new_finals,
            ends=self._new_ends,
            frames=self._new_frames,
            episodes=self._episodes,
            versions=(self._least, self._sum / max(1, self._new_steps), self._greatest),
            page_full=self.page_is_full,
            closes_rollout=closes_rollout,
            cut=cut,
            env_seconds=times[0],
            policy_seconds=times[1],
            wait_seconds=times[2],
        )
        if self.page_is_full and self._ahead is not None:
            self._page, self._step = self._ahead
            self._ahead = None
        self._begin_report()
        return message

    def restart(self) -> None:
        """All copies are to be reset: the next row of each begins an episode."""
        self._lane_steps[:] = 0
        self._returns[:] = 0.0
        self._lengths[:] = 0


class Leases:
    """The pages that were leased and not begun, in the order they came."""

    def __init__(self) -> None:
        self.rows: deque[int] = deque()
        self.finals: deque[int] = deque()

    def add(self, lease: Lease) -> None:
        """Take one in."""
        (self.finals if lease.finals else self.rows).append(lease.page)
