"""Committing written rows: the number of used steps of a page, and the rows where episodes begin."""

from __future__ import annotations

import cython
import numpy as np
from numpy.typing import NDArray

from headrace.store.layout import LaneArrays

if not cython.compiled:
    from headrace.kernels.handoff import asking, offer
    from headrace.kernels.hints import in_order
    from headrace.kernels.kinds import Bool, GivenBytes, GivenInts, GivenLongs, Int, Ints, Longs, LongTable
    from headrace.store.copying import place_fields
    from headrace.store.layout import (
        BY_ROW,
        BY_STEP,
        EMPTY,
        ENDED_FROM,
        FINAL,
        LANES,
        LAST_ROW,
        NO_LINK,
        OPEN_FROM,
        STARTS,
        STEP_MASK,
        USED,
        VERSIONED,
    )
    from headrace.store.pages.pinning import Pins
    from headrace.store.window import step_after

_NO_FIELDS = np.zeros((0, 1), np.int64)


class Lanes:
    """Lanes side by side: their steps become part of the store.

    Args:
        pins: of the store.
        next_episode: int64[1], the store's counter of episodes.
        versions: int32[rows], the store's.
        memory: uint8[...], the store's arena.
        spans: int64[arrays, 2], where each array with values of rows begins and ends in it, the records first.
        arrays: the state of the lanes.
        staged, fields: the memory and the fields of a `Stage` that is written before each commit; None where rows are
            written themselves.

    Attributes:
        newest: the rows of the step committed last.
        count: of lanes.
        row: the first row of the step to be written next.
        stop: behind the last row that a step may take; where `row` has come there, lanes need another page.
        last: the first row of the step committed last; -1 before the first.
        committed: how many steps.
        version: of the policy that acts; stored with each step. 0 is not written. Final rows, in which no policy acts,
            have that of the step before.
    """

    def __init__(
        self,
        pins: Pins,
        next_episode: Longs,
        versions: Ints,
        memory: NDArray[np.uint8],
        spans: LongTable,
        arrays: LaneArrays,
        staged: NDArray[np.uint8] | None = None,
        fields: NDArray[np.int64] | None = None,
    ) -> None:
        self.pins = pins
        self.window = pins.window
        self.next_episode = next_episode
        self.versions = versions
        self.memory = memory
        self.spans = spans
        self.steps = arrays.steps
        self.episodes = arrays.episodes
        self.newest = arrays.newest
        self.words = arrays.words
        self.count = len(arrays.steps)
        self.row = self.stop = self.last = -1
        self.committed = self.version = 0
        rows = len(self.window.steps)
        self.records = memory[spans[0, 0] : spans[0, 1]]
        self.record_nbytes = len(self.records) // rows
        self.staged = memory[:0] if staged is None else staged
        self.fields = _NO_FIELDS if fields is None else fields

    # ---- whole steps -------------------------------------------------------------------------------------------------

    def begin_step(self) -> Bool:
        """Begins a step of a writer: a thread that waits for the interpreter lock after a copy has its turn first.

        Returns:
            Whether the step needs another page.
        """
        if asking:
            with cython.nogil:
                offer()
        return self.is_full()

    def is_full(self) -> Bool:
        """Returns whether the next step needs another page."""
        return self.row >= self.stop

    def take_step(self) -> None:
        """Commits the vector step at `row`, one transition of every lane, after writing its staged columns.

        Raises:
            RuntimeError: the page has no row for it; nothing changed.
        """
        if self.is_full():
            self.refuse()
        self.take_staged()
        self.commit_step()

    def take_marked(self, final: GivenBytes, idle: GivenBytes, is_staged: Bool) -> None:
        """Commits the vector step at `row`, in which some lanes hold their final row and some hold nothing.

        Args:
            final, idle: see `commit_marked`.
            is_staged: whether the staged columns are written first; otherwise all columns are written already.

        Raises:
            RuntimeError: the page has no row for it; nothing changed.
        """
        if self.is_full():
            self.refuse()
        if is_staged:
            self.take_staged()
        self.clear_idle(idle)
        self.commit_marked(final, idle)

    def refuse(self) -> None:
        """Refuses a step whose row was taken, or given back, while its values were read.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError(
            "this writer was used or closed while it read a step: by another thread, or by a value of the step. "
            "Use a writer in one thread, and give arrays or numbers as values. The step is not stored"
        )

    # ---- many steps at once ------------------------------------------------------------------------------------------

    def commit_written(
        self,
        page: Int,
        steps: Int,
        final: GivenLongs,
        idle: GivenLongs,
        ended: GivenLongs,
        final_rows: GivenLongs,
        versions: GivenInts,
    ) -> None:
        """Commits the next `steps` vector steps of a page, whose columns are written already.

        Args: see `WrittenSteps`.
        """
        finals: Int = 0
        idles: Int = 0
        ends: Int = 0
        number: Int = 0
        with cython.nogil:
            self._stamp_written(page, steps, versions)
            used: Int = self.window.pages[page, USED]
            row: Int = page * self.window.page_rows + used * self.count
            starts: Int = self.window.pages[page, STARTS]
            # One lane after another in each step: the order in which new episodes are numbered.
            for step in range(used, used + steps):
                before: Int = self.last
                acts: Bool = False
                before_finals: Int = finals
                self.last = row
                self.committed += 1
                for lane in range(self.count):
                    self.newest[lane] = row
                    if idles < idle.shape[0] and idle[idles] == number:
                        idles += 1
                        self._commit_empty(lane, row)
                    else:
                        is_final: Bool = finals < final.shape[0] and final[finals] == number
                        finals += is_final
                        acts = acts or not is_final
                        starts = self._commit_row(page, lane, row, step == 0, is_final, starts)
                        if ends < ended.shape[0] and ended[ends] == number:
                            self._end_beside_row(lane, row, final_rows[ends])
                            ends += 1
                    row += 1
                    number += 1
                if finals > before_finals and not acts and before >= 0:
                    self._stamp_again(page, step, before)
            self.row = row
            self._count(page, starts, used + steps)

    def _commit_empty(self, lane: Int, row: Int) -> None:
        """Commits a row of a lane that holds nothing."""
        self._clear_row(row)
        self.window.steps[row] = EMPTY
        self._leave_lane(lane)

    def _commit_row(self, page: Int, lane: Int, row: Int, is_first: Bool, is_final: Bool, starts: Int) -> Int:
        """Commits a row of a lane; returns the page's number of entries.

        Args:
            is_first: whether it is the first of the lane in its page.
            is_final: whether it is the final row of an episode.
            starts: the page's number of entries before.
        """
        index: Int = cython.cast(Int, self.steps[lane])
        if index == 0 or is_first:
            starts = self._begin_rows(page, lane, row, index == 0, starts)
        if is_final:
            self.window.steps[row] = index | FINAL
            # The page may have held final rows beside other lanes before.
            self.window.links[row] = NO_LINK
            self._end_lane(lane, row)
        else:
            self.window.steps[row] = index
            self.steps[lane] = step_after(index, 1)
        return starts

    def end_written(self, lanes: GivenLongs, final_rows: GivenLongs) -> None:
        """Ends the open episodes of these lanes with these rows, whose columns are written already."""
        for place in range(lanes.shape[0]):
            self._end_beside(lanes[place], final_rows[place])

    def _stamp_written(self, page: Int, steps: Int, versions: GivenInts) -> None:
        """Writes the versions of the next steps of a page, of which there is one a step, or one a row.

        The first version that is not 0 decides which of these the page has: rows that are committed keep their places.
        """
        first: Int = page * self.window.page_rows
        used: Int = self.window.pages[page, USED]
        width: Int = self.count if versions.shape[0] > steps else 1
        if self.window.pages[page, VERSIONED] == 0:
            for place in range(versions.shape[0]):
                if versions[place] != 0:
                    self.window.pages[page, VERSIONED] = BY_ROW if width > 1 else BY_STEP
        if self.window.pages[page, VERSIONED] == BY_ROW:
            for row in range(steps * self.count):
                self.versions[first + used * self.count + row] = versions[
                    row if width > 1 else row // self.count
                ]
        elif self.window.pages[page, VERSIONED] == BY_STEP:
            for step in range(steps):
                self.versions[first + used + step] = versions[step * width]

    def _stamp_again(self, page: Int, step: Int, before: Int) -> None:
        """Gives a step of a page in which no policy acts the versions of the step before, whose first row is given."""
        first: Int = page * self.window.page_rows
        if self.window.pages[page, VERSIONED] == 0:
            # Where the lanes had versions of their own, they have them in this page, too.
            self.window.pages[page, VERSIONED] = self.window.pages[self.window.page_of(before), VERSIONED]
        if self.window.pages[page, VERSIONED] == BY_ROW:
            for lane in range(self.count):
                self.versions[first + step * self.count + lane] = self._version_at(before + lane)
            return
        self.versions[first + step] = self._version_at(before)

    # ---- their parts -------------------------------------------------------------------------------------------------

    def take_staged(self) -> None:
        """Writes the staged columns of the vector step at `row`, before it is committed."""
        if self.fields.shape[0] > 0:
            place_fields(self.staged, self.fields, self.count, self.records, self.record_nbytes, self.row)

    def commit_step(self) -> None:
        """Takes in the vector step at `row`, one transition of every lane.

        Its columns are written already, the staged ones by `take_staged`.
        """
        row = self.row
        self._stamp(self.version)
        begins: Int = 0
        for lane in range(self.count):
            step: Int = cython.cast(Int, self.steps[lane])
            self.window.steps[row + lane] = step
            self.newest[lane] = row + lane
            begins += cython.cast(Int, step == 0)
            self.steps[lane] = step + 1 if step < STEP_MASK else step_after(step, 1)
        page = self.window.page_of(row)
        used: Int = self.window.pages[page, USED]
        if begins > 0 or used == 0:
            self._take_in(page, 1)
        else:
            in_order()
            self.window.pages[page, USED] = used + 1
        self._turn()

    def clear_idle(self, idle: GivenBytes) -> None:
        """Writes zeros into every column of the lanes that hold nothing in the vector step at `row`."""
        for lane in range(idle.shape[0]):
            if idle[lane]:
                self._clear_row(self.row + lane)

    def _clear_row(self, row: Int) -> None:
        for array in range(self.spans.shape[0]):
            nbytes: Int = (self.spans[array, 1] - self.spans[array, 0]) // self.window.steps.shape[0]
            first: Int = self.spans[array, 0] + row * nbytes
            for place in range(first, first + nbytes):
                self.memory[place] = 0

    def commit_marked(self, final: GivenBytes, idle: GivenBytes) -> None:
        """Does the same as `commit_step`, where some lanes hold the final row of their episode and some hold nothing.

        Args:
            final, idle: bool[lanes].
        """
        row = self.row
        self._stamp(self._last_version() if self._only_ends(final, idle) else self.version)
        for lane in range(self.count):
            word: Int = cython.cast(Int, self.steps[lane])
            if idle[lane]:
                word = EMPTY
            elif final[lane]:
                word |= FINAL
                # The page may have held final rows beside other lanes before.
                self.window.links[row + lane] = NO_LINK
            self.window.steps[row + lane] = word
            self.newest[lane] = row + lane
        self._take_in(self.window.page_of(row), 1)
        self._turn()
        for lane in range(self.count):
            step: Int = cython.cast(Int, self.steps[lane])
            if idle[lane]:
                self._leave_lane(lane)
            elif final[lane]:
                self._end_lane(lane, row + lane)
            else:
                self.steps[lane] = step_after(step, 1)

    def _only_ends(self, final: GivenBytes, idle: GivenBytes) -> Bool:
        """Returns whether a step has final rows, and no policy acts in it."""
        has_final: Bool = False
        for lane in range(self.count):
            if final[lane]:
                has_final = True
            elif not idle[lane]:
                return False
        return has_final

    def commit_finals(self, ended: GivenLongs, first: Int) -> None:
        """Commits the rows from `first` on, written already in a page of their own, as the final rows of some lanes.

        Args:
            ended: int64[m], the lanes.
        """
        for place in range(ended.shape[0]):
            self._end_beside(ended[place], first + place)

    def _end_beside(self, lane: Int, final: Int) -> None:
        """Ends the episode of a lane after the step committed last, with a final row in a page of its own."""
        self._end_beside_row(lane, self.last + lane, final)

    def _end_beside_row(self, lane: Int, row: Int, final: Int) -> None:
        """Does the same for a lane whose last transition is at `row`."""
        page = self.window.page_of(final)
        version = self._version_at(row)
        if version != 0:
            self.window.pages[page, VERSIONED] = BY_STEP
            self.versions[final] = version
        self.window.steps[final] = self.steps[lane] | FINAL
        in_order()
        self.window.pages[page, USED] = final - page * self.window.page_rows + 1
        self.pins.link_final(row, final)
        self._end_lane(lane, final)

    def _end_lane(self, lane: Int, row: Int) -> None:
        self.words[ENDED_FROM, lane] = self.words[OPEN_FROM, lane]
        self.words[OPEN_FROM, lane] = self.committed
        self.words[LAST_ROW, lane] = row
        self.steps[lane] = 0

    def _leave_lane(self, lane: Int) -> None:
        """Notes that the lane holds nothing in a step."""
        if self.steps[lane] != 0:
            self.words[LAST_ROW, lane] = -1
        self.steps[lane] = 0

    def _stamp(self, version: cython.int) -> None:
        """Writes the version of the step at `row`, before it is committed."""
        if version != 0:
            page = self.window.page_of(self.row)
            first = page * self.window.page_rows
            self.window.pages[page, VERSIONED] = BY_STEP
            self.versions[first + (self.row - first) // self.count] = version

    def _last_version(self) -> cython.int:
        """Returns the version of the step committed last; 0 before the first."""
        return self._version_at(self.last) if self.last >= 0 else 0

    def _version_at(self, row: Int) -> cython.int:
        """Returns the version of a committed row of a lane."""
        page = self.window.page_of(row)
        first = page * self.window.page_rows
        is_by_row: Bool = self.window.pages[page, VERSIONED] == BY_ROW
        version: cython.int = self.versions[row if is_by_row else first + (row - first) // self.count]
        return version

    def _turn(self) -> None:
        """Goes on to the next step, after the step at `row` was committed."""
        self.last = self.row
        self.row += self.count
        self.committed += 1

    def _take_in(self, page: Int, steps: Int) -> None:
        """Commits the next `steps` vector steps of a page, whose rows and words are written already."""
        first = page * self.window.page_rows
        used: Int = self.window.pages[page, USED]
        lanes: Int = self.window.pages[page, LANES]
        starts: Int = self.window.pages[page, STARTS]
        for step in range(used, used + steps):
            for lane in range(lanes):
                in_page = step * lanes + lane
                word = self.window.word(first + in_page)
                if word & EMPTY:
                    continue
                begins: Bool = (word & STEP_MASK) == 0
                if begins or step == 0:
                    starts = self._begin_rows(page, lane, first + in_page, begins, starts)
        self._count(page, starts, used + steps)

    def _begin_rows(self, page: Int, lane: Int, row: Int, is_first: Bool, starts: Int) -> Int:
        """Notes that an episode begins at this row, or continues in its page; returns the page's number of entries."""
        if is_first:
            self.episodes[lane] = self.next_episode[0]
            self.next_episode[0] += 1
        first = page * self.window.page_rows
        self.window.start_rows[first + starts] = row - first
        self.window.start_ids[first + starts] = self.episodes[lane]
        return starts + 1

    def _count(self, page: Int, starts: Int, used: Int) -> None:
        """Sets the numbers of steps and entries of a page."""
        # The metadata of rows is stored before the rows count: the process may be killed in between (replay D2).
        in_order()
        self.window.pages[page, STARTS] = starts
        in_order()
        self.window.pages[page, USED] = used
