"""A worker's side of a replay: it fills leased pages of the learner's own store, in place.

Only NumPy is needed here: a page is columns and one word of metadata a row (`store.layout`). What is written is nowhere
to be seen until the collector commits it, so a worker that dies in the middle of a step leaves no trace.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.collectors.channel import Rows
from headrace.envs.protocol import NO_COPIES, Indices, StepResult
from headrace.spec import Signature
from headrace.store.arena import Arena
from headrace.store.layout import FINAL, LINKED, NO_LINK, STEP_HALF, STEP_MASK, columns, plan

Columns = Mapping[str, NDArray[Any]]


class LeasedRows:
    """Where a loop writes when its rows belong to a replay in another process.

    Args:
        arena: the replay's, mapped here.
        signature, num_pages, page_rows: of its store.
        observed: names of the columns that an observation has.
        num_envs: n.
        need_page: waits for the next leased page: of final rows (True) or of others. It is called between two steps
            only; what was written is consistent then and may be reported meanwhile.
    """

    def __init__(
        self,
        arena: Arena,
        signature: Signature,
        num_pages: int,
        page_rows: int,
        observed: frozenset[str],
        num_envs: int,
        need_page: Callable[[bool], int],
    ) -> None:
        arrays = plan(signature, num_pages, page_rows).arrays(arena)
        self._columns = columns(arrays, signature)
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
        self._ahead = -1
        self._finals_page, self._finals_used = -1, page_rows
        self._finals_ahead: deque[int] = deque()
        self._lane_steps = np.zeros(num_envs, np.uint32)
        self._returns = np.zeros(num_envs)
        self._lengths = np.zeros(num_envs, np.int64)
        self._cuts: Indices = NO_COPIES
        self._turns = False
        self._begin_report()

    def _begin_report(self) -> None:
        self._new_steps = self._new_finals = self._new_frames = 0
        self._episodes: list[tuple[float, int]] = []
        self._stamps: dict[int, int] = {}

    # ---- what the loop asks ----------------------------------------------------------------------------------------

    def begin(self, first: Columns) -> None:
        """Take the first pages; these are the observations of the first step."""
        self._enter(self._need_page(False))
        self._provide_finals()
        for name, column in self.row.items():
            column[...] = first[name]

    @property
    def row(self) -> Columns:
        """The observations of the step that comes next."""
        return self._rows[self._step]

    @property
    def next_row(self) -> Columns:
        """Where the observations that follow are to be written; in the next page where this one ends."""
        if self._step + 1 < self._steps_in_page:
            return self._rows[self._step + 1]
        if self._ahead < 0:
            self._ahead = self._need_page(False)
        first = self._ahead * self._page_rows
        return {name: self._columns[name][first : first + self._num_envs] for name in self._observed}

    def _enter(self, page: int) -> None:
        """Go on in this page. Views of its rows are made once: the loop asks for them at every step."""
        self._page, self._step, self._ahead = page, 0, -1
        first = page * self._page_rows
        rows = slice(first, first + self._steps_in_page * self._num_envs)
        blocks = {
            name: column[rows].reshape(self._steps_in_page, self._num_envs, *column.shape[1:])
            for name, column in self._columns.items()
        }
        observed = {name: blocks[name] for name in self._observed}
        self._rows = [
            {name: block[step] for name, block in observed.items()} for step in range(self._steps_in_page)
        ]
        self._other_blocks = [(name, blocks[name]) for name in self._others]
        self._word_block = self._words[rows].reshape(self._steps_in_page, self._num_envs)
        self._near_wrap = int(self._lane_steps.max()) + self._steps_in_page > STEP_MASK

    def _provide_finals(self) -> None:
        """Take pages of final rows until there are enough for every step of a page and for a cut after it."""
        most = self._page_rows + self._num_envs
        while (1 + len(self._finals_ahead)) * self._page_rows - self._finals_used < most:
            self._finals_ahead.append(self._need_page(True))

    def record(
        self, actions: Columns, extras: Columns, result: StepResult, finals: Indices, version: int
    ) -> None:
        """Write what was done at this step and what followed; see `Sink.record`."""
        step = self._step
        first = self._page * self._page_rows + step * self._num_envs
        given = {**actions, **extras, "reward": result.reward}
        given["terminated"], given["truncated"] = result.terminated, result.truncated
        for name, block in self._other_blocks:
            block[step] = given.get(name, 0)
        words = self._word_block[step]
        words[:] = self._lane_steps
        self._lane_steps += np.uint32(1)
        self._returns += result.reward
        self._lengths += 1
        self._versions[self._page * self._page_rows + step] = version
        frames = self._num_envs - len(result.reset_steps)
        if result.reset_steps.size:
            self._finish_in_lane(result.reset_steps, first, words)
        if result.ended.size:
            ended = result.ended
            self._episodes += zip(self._returns[ended].tolist(), self._lengths[ended].tolist(), strict=True)
            if finals.size:
                self._finish_beside(finals, first, result.last_observation)
        if self._near_wrap:
            self._lane_steps[self._lane_steps > STEP_MASK] = STEP_HALF
        self._stamps[version] = self._stamps.get(version, 0) + frames
        self._new_frames += frames
        self._new_steps += 1
        self._step += 1

    def cut(self) -> None:
        """All copies are about to be reset: those in an episode get a final row with what followed their last step.

        Steps that were reported before are the collector's: it links them (`Landlord`), and it may still be reading
        this row as what followed them. So the next report leaves the page.
        """
        cuts = np.flatnonzero(self._lane_steps)
        row = self.row
        for copy in cuts.tolist():
            self._write_final(copy, row)
        self._cuts = cuts
        self._begin_lanes(np.arange(self._num_envs))

    def _begin_lanes(self, copies: Indices) -> None:
        """The next row of each of these copies begins an episode."""
        self._lane_steps[copies] = 0
        self._returns[copies] = 0.0
        self._lengths[copies] = 0

    def _finish_in_lane(self, copies: Indices, first: int, words: NDArray[np.uint32]) -> None:
        """NEXT_STEP: the rows of copies that were just reset are the final rows of their old episodes."""
        words[copies] |= np.uint32(FINAL)
        # The page may have held final rows beside other lanes before.
        self._links[first + copies] = NO_LINK
        for name in self._others:
            self._columns[name][first + copies] = 0
        self._begin_lanes(copies)

    def _finish_beside(self, copies: Indices, first: int, observations: Columns) -> None:
        """The final rows of these copies stand in a page of their own."""
        for copy in copies.tolist():
            final = self._write_final(copy, observations)
            last = first + copy
            self._words[last] |= np.uint32(LINKED)
            self._links[last] = final + 1
            self._links[final] = last + 1
        self._begin_lanes(copies)

    def _write_final(self, copy: int, observations: Columns) -> int:
        if self._finals_used == self._page_rows:
            self._finals_page, self._finals_used = self._finals_ahead.popleft(), 0
        final = self._finals_page * self._page_rows + self._finals_used
        for name in self._observed:
            self._columns[name][final] = observations[name][copy]
        for name in self._others:
            self._columns[name][final] = 0
        self._words[final] = self._lane_steps[copy] | np.uint32(FINAL)
        self._finals_used += 1
        self._new_finals += 1
        return final

    # ---- what the worker asks --------------------------------------------------------------------------------------

    @property
    def page_is_full(self) -> bool:
        """Whether the page has no room for another step."""
        return self._step == self._steps_in_page

    @property
    def has_news(self) -> bool:
        """Whether anything was written since the last report."""
        return self._new_steps > 0 or self._cuts.size > 0

    def report(self, *, closes_rollout: bool, seconds: tuple[float, float, float]) -> Rows:
        """What was written since the last report; `turn` follows before the next step is written."""
        turns = self.page_is_full or self._cuts.size > 0
        message = Rows(
            page=self._page,
            steps=self._new_steps,
            finals=self._new_finals,
            frames=self._new_frames,
            episodes=self._episodes,
            stamps=self._stamps,
            page_full=turns,
            closes_rollout=closes_rollout,
            cuts=len(self._cuts),
            seconds=seconds,
        )
        self._turns = turns
        self._cuts = NO_COPIES
        self._begin_report()
        return message

    def turn(self) -> None:
        """Go on in the page ahead where the last report said that this one is done."""
        if self._turns:
            self._turns = False
            self._enter(self._ahead if self._ahead >= 0 else self._need_page(False))
            self._provide_finals()
