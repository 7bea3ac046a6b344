"""From a table's items to a batch: keeps plans of views, finds rows and copies them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headrace.clock import Clock
from headrace.errors import Closed
from headrace.replay.padding import fill_padding
from headrace.replay.sampling.fused import FusedBatches, may_be_small
from headrace.replay.sampling.origin import Origin
from headrace.replay.sampling.packing import BatchLayout
from headrace.replay.sampling.replay_sample import ReplaySample, SampleInfo
from headrace.replay.waiter import turn
from headrace.store.gather import Pool
from headrace.store.layout import MAX_ROWS
from headrace.store.pages.readers import ReadGuard
from headrace.store.store import Store
from headrace.tables.draw import Draw
from headrace.tables.items.layout import (
    LOOKAHEAD,
    PADDED,
    PRIORITY,
    PROBABILITY,
    REAL,
    ROW,
    SIZE,
    STREAM,
    TIMES,
)
from headrace.tables.live_table import LiveTable
from headrace.views.located import Located
from headrace.views.stored.ahead import count_newest, knows_too_little
from headrace.views.stored.sampling import SamplingPlan
from headrace.views.view import View


class _LocatedDraw(NamedTuple):
    """A draw whose rows are found, but not copied."""

    draw: Draw
    located: Located
    mask: NDArray[np.bool_] | None


# A draw of `FusedBatches.sample`: its object, the buffer, and the number of unknown values.
_Fused: TypeAlias = tuple[FusedBatches, NDArray[np.uint8], int]
# A draw of either kind; before it its plan, and after it the guard over rows that are still to be copied, and how many
# rows to warn of, and of how many. A bare tuple: a class takes 2 % of a batch.
_Drawn: TypeAlias = tuple[SamplingPlan, _Fused | _LocatedDraw, ReadGuard | None, tuple[int, int] | None]

_KEPT_PLANS = 100
_KEPT_QUICK = 64


class Sampling:
    """Makes batches of the items that the tables of a replay draw.

    Args:
        store: of the rows.
        random: the replay's generator, for views that draw.
        clock: for deadlines.
        given: see below.
        pool: of the arrays of large batches; None makes one for each plan.
        warn: takes the text of a warning to the caller of `sample`.

    Attributes:
        given: columns that final rows are given, as `know_given` was told.
        paddings: table to what its padded rows hold, column by column.
    """

    def __init__(
        self,
        store: Store,
        random: np.random.Generator,
        clock: Clock,
        given: frozenset[str],
        pool: Pool | None = None,
        warn: Callable[[str], None] = lambda text: warnings.warn(text, stacklevel=6),
    ) -> None:
        self._warn = warn
        self.random = random
        self.given = given
        self.paddings: dict[str, dict[str, NDArray[Any]]] = {}
        self._store = store
        self._clock = clock
        self._batch_pool = pool
        self.forget_plans()

    def with_pool(self, pool: Pool, warn: Callable[[str], None]) -> Sampling:
        """Returns another sampler of the same replay, for a caller in another process.

        `keep_up` tells it what was declared since.

        Args:
            pool: of the arrays of large batches.
            warn: takes the text of a warning to the caller.
        """
        return Sampling(self._store, self.random, self._clock, self.given, pool, warn)

    def keep_up(self, other: Sampling) -> None:
        """Takes what was declared to another sampler of the same replay."""
        self.paddings = other.paddings
        if self.given is not other.given:
            self.know_given(other.given)

    def know_given(self, given: frozenset[str]) -> None:
        """Final rows hold these columns from here on; a plan that knew nothing of them is made anew."""
        self.given = given
        self.forget_plans()

    def forget_plans(self) -> None:
        """Drops all plans; for a forked child, where another thread may have held the lock of a pool."""
        self._plans: dict[Any, SamplingPlan] = {}
        self._fused: dict[tuple[SamplingPlan, LiveTable, int], FusedBatches] = {}
        self._pool = Pool()
        self._latest_plan: tuple[Any, Any, SamplingPlan] | None = None

    def sample(
        self, live: LiveTable, batch_size: int, views: Mapping[str, View] | None, timeout: float | None
    ) -> ReplaySample:
        """See `Replay.sample`."""
        if batch_size > MAX_ROWS:
            raise ValueError(f"batch_size: expected at most {MAX_ROWS}, got {batch_size}")
        plan = self.plan(views)
        drawn = None
        try:
            with self._store.lock:
                if self._store.is_closed:
                    raise Closed("the replay is closed")
                if live.can_sample(batch_size):
                    drawn = self._draw(plan, views, live, batch_size)
                else:
                    with turn(live, batch_size, lock=self._store.lock, clock=self._clock, timeout=timeout):
                        drawn = self._draw(plan, views, live, batch_size)
            batch = self._copy(live, views, drawn)
        except MemoryError as error:
            raise _no_memory(live, batch_size) from error
        finally:
            if drawn is not None and drawn[2] is not None:
                drawn[2].end()
        return self._complete(live, drawn, batch)

    def sample_now(
        self, live: LiveTable, batch_size: int, views: Mapping[str, View] | None, may_draw: Callable[[], bool]
    ) -> ReplaySample | None:
        """Returns a batch that can be drawn at once, for a caller whose waits are tickets.

        Args:
            live, batch_size, views: see `sample`.
            may_draw: called with the lock held; False: nothing is drawn. It raises if the batch can never be drawn.
        """
        if batch_size > MAX_ROWS:
            raise ValueError(f"batch_size: expected at most {MAX_ROWS}, got {batch_size}")
        plan = self.plan(views)
        drawn = None
        try:
            with self._store.lock:
                if self._store.is_closed:
                    raise Closed("the replay is closed")
                if not may_draw():
                    return None
                drawn = self._draw(plan, views, live, batch_size)
            batch = self._copy(live, views, drawn)
        except MemoryError as error:
            raise _no_memory(live, batch_size) from error
        finally:
            if drawn is not None and drawn[2] is not None:
                drawn[2].end()
        return self._complete(live, drawn, batch)

    def _copy(self, live: LiveTable, views: Mapping[str, View] | None, drawn: _Drawn) -> ReplaySample:
        """Copies the rows of a draw. Its guard must be open."""
        plan, found, reader, _ = drawn
        if isinstance(found, _LocatedDraw):
            batch = self._present(plan, live, views, found)
        else:
            batch = found[0].present(found[1], found[2])
        if reader is not None:
            self._store.check_rows_were_ours()
        return batch

    def _complete(self, live: LiveTable, drawn: _Drawn, batch: ReplaySample) -> ReplaySample:
        """Does what needs neither the lock nor the guard."""
        plan, found, _, newest = drawn
        if isinstance(found, _LocatedDraw):
            plan.finish(found.located, batch.data)
        if newest is not None:
            self._warn(_warning_of_newest(live, plan, *newest))
        batch._origin = plan.origins.get(live) or self._new_origin(plan, live)
        return batch

    def peek(self, live: LiveTable, max_rows: int | None, random: np.random.Generator) -> ReplaySample:
        """See `TableView.peek`."""

        def draw() -> Draw:
            draw = live.ring.peek(random)
            if max_rows is not None and draw.has_sequences:
                draw.windows = _shortened(draw.windows, max_rows)
            return draw

        return self._look(live, None, draw)

    def get(
        self, live: LiveTable, keys: NDArray[np.uint64], views: Mapping[str, View] | None
    ) -> ReplaySample:
        """See `Replay.get`."""
        return self._look(live, views, lambda: live.ring.get(keys))

    def _look(
        self, live: LiveTable, views: Mapping[str, View] | None, find: Callable[[], Draw]
    ) -> ReplaySample:
        """Copies items that `find`, called with the lock held, returns; nothing is counted."""
        with self._store.lock:
            if self._store.is_closed:
                raise Closed("the replay is closed")
            plan, draw = self.plan(views), find()
            reader = self._store.begin_reading()
            try:
                found = self._locate(plan, draw, np.random.default_rng())
            except BaseException:
                reader.end()
                raise
        try:
            batch = self._present(plan, live, views, found)
            self._store.check_rows_were_ours()
        finally:
            reader.end()
        plan.finish(found.located, batch.data)
        batch._origin = plan.origins.get(live) or self._new_origin(plan, live)
        return batch

    def _new_origin(self, plan: SamplingPlan, live: LiveTable) -> Origin:
        found = plan.origins[live] = Origin(self._store, live, plan)
        return found

    def _draw(
        self, plan: SamplingPlan, views: Mapping[str, View] | None, live: LiveTable, batch_size: int
    ) -> _Drawn:
        """Draws items and finds their rows. The lock must be held."""
        if plan.final_columns is not self.given:
            # The first final row came in between, and with it what is known before acting.
            plan = self.plan(views)
        reader = self._store.begin_reading() if plan.is_copied_later else None
        try:
            fused = self._draw_fused(plan, live, batch_size)
            if fused is not None:
                batches, out, missing = fused
                looks_ahead = missing and batches.ahead
                newest = self._count_newest(live, plan, batches.rows(out)) if looks_ahead else None
                return plan, fused, reader, newest
            reader = reader or self._store.begin_reading()
            located = self._locate(plan, live.draw(batch_size), self.random)
            looks_ahead = plan.ahead.rows and knows_too_little(located.located)
            newest = self._count_newest(live, plan, located.located.rows) if looks_ahead else None
            return plan, located, reader, newest
        except BaseException:
            if reader is not None:
                reader.end()
            raise

    def _present(
        self, plan: SamplingPlan, live: LiveTable, views: Mapping[str, View] | None, found: _LocatedDraw
    ) -> ReplaySample:
        """Copies the rows of a draw that was not fused. Its guard must be open."""
        data = plan.present(found.located)
        padding = self.paddings.get(live.name)
        if found.mask is not None and padding is not None:
            fill_padding(padding, self._store.signature, views, data, found.mask)
        rows = found.located.rows
        layout = BatchLayout(rows.shape[1] if rows.ndim > 1 else None, plan.every)
        return ReplaySample(data, _info_of(found.draw), found.mask, layout)

    def _count_newest(
        self, live: LiveTable, plan: SamplingPlan, rows: NDArray[np.int64]
    ) -> tuple[int, int] | None:
        """Counts the rows of a batch that are the newest of their lanes, and all its rows; None without a warning.

        The lock must be held.
        """
        if live.has_warned_of_newest:
            return None
        count = int(np.count_nonzero(rows >= 0))
        if rows.ndim > 1:
            rows = rows[:, :: plan.ahead.every]
        newest = count_newest(self._store, rows.reshape(-1))
        live.has_warned_of_newest = newest > 0
        return (newest, count) if newest else None

    def _draw_fused(self, plan: SamplingPlan, live: LiveTable, batch_size: int) -> _Fused | None:
        """Returns a fused draw, or None if the batch cannot be fused (`replay.sampling.fused`)."""
        if plan.fused is None:
            return None
        key = (plan, live, batch_size)
        found = self._fused.get(key)
        if found is not None and found.is_small:
            drawn = live.draw_fused(found)
            if drawn is not None:
                return found, *drawn
        # There was no such batch before, or the items have other windows now.
        if not live.can_draw_fused:
            return None
        length, sequences = int(live.ring.window[REAL]), live.ring.has_sequences
        if not may_be_small(plan.fused, batch_size, length):
            return None
        if found is None or (found.length, found.sequences) != (length, sequences):
            found = FusedBatches(
                self._store,
                self._pool,
                plan.fused,
                batch_size,
                length,
                sequences=sequences,
                wide_pool=self._batch_pool or self._pool,
            )
            if len(self._fused) >= _KEPT_QUICK:
                self._fused.clear()
            self._fused[key] = found
        drawn = live.draw_fused(found) if found.is_small else None
        return None if drawn is None else (found, *drawn)

    def _locate(self, plan: SamplingPlan, draw: Draw, random: np.random.Generator) -> _LocatedDraw:
        starts = draw.integers[ROW]
        if not draw.has_sequences:
            return _LocatedDraw(draw, plan.locate(starts, padded=False, random=random), None)
        windows = draw.windows
        if windows.ndim == 1:
            # All items agree: nothing has to be looked up for each.
            longest, padded = int(windows[REAL] + windows[PADDED]), bool(windows[PADDED])
            counts = np.full(len(starts), windows[REAL], np.uint32)
        else:
            counts = np.ascontiguousarray(windows[:, REAL])
            longest = int((counts + windows[:, PADDED]).max())
            padded = bool((counts != longest).any())
        rows = np.empty((len(starts), longest), np.int64)
        self._store.window.rows_of_windows(starts, counts, rows)
        located = plan.locate(rows, padded=padded, random=random)
        return _LocatedDraw(draw, located, rows >= 0 if padded else None)

    def plan(self, views: Mapping[str, View] | None) -> SamplingPlan:
        """Returns the plan of these views; None is the signature's tree.

        Raises:
            TypeError, SpecError: no such views, or not of these columns.
        """
        latest, given = self._latest_plan, self.given
        # The dict may have been changed since. Comparing it with a copy is quick: its values are the same objects.
        if (
            latest is not None
            and latest[0] is views
            and latest[2].final_columns is given
            and latest[1] == views
        ):
            return latest[2]
        if views is not None and not isinstance(views, Mapping):
            raise TypeError(f"views: expected a dict of View, got {type(views).__name__}")
        key = None if views is None else tuple(views.items())
        plan = self._plans.get(key)
        # A thread that was planning while the first final row came puts back a plan that knew nothing of it.
        if plan is None or plan.final_columns is not given:
            if len(self._plans) >= _KEPT_PLANS:
                # Views that are made anew for each batch are never equal where they hold a new function.
                self._plans, self._fused = {}, {}
            plan = self._plans[key] = SamplingPlan(self._store, views, given, self._batch_pool)
        self._latest_plan = (views, None if views is None else dict(views), plan)
        return plan


def _shortened(windows: NDArray[np.uint32], max_rows: int) -> NDArray[np.uint32]:
    """Returns windows of at most this many rows, padded rows included."""
    short = windows.copy()
    short[..., REAL] = np.minimum(short[..., REAL], max_rows)
    short[..., PADDED] = np.minimum(short[..., PADDED], max_rows - short[..., REAL])
    return short


def _no_memory(live: LiveTable, batch_size: int) -> MemoryError:
    return MemoryError(
        f"batch_size: no memory for a batch of {batch_size} items of table {live.name!r}; ask for fewer"
    )


def _warning_of_newest(live: LiveTable, plan: SamplingPlan, newest: int, rows: int) -> str:
    """Returns the warning that items do not wait for the rows that the views need; each table gives it once."""
    ring = live.ring
    length = "length" if ring.has_windows else int(ring.window[REAL])
    remedy = f"hr.ItemRule({live.name!r}, {length}, lookahead={plan.ahead.rows}) makes items that wait for it"
    if ring.window[LOOKAHEAD] == STREAM:
        remedy = "items over the ends of episodes cannot wait for it, so leave these rows out of the loss"
    return (
        f"table {live.name!r}: {newest} of the {rows} rows of this batch are the newest of their lanes, and the views "
        f"look ahead: what comes after these rows is not stored yet and was filled (n = 0 of views.transition); "
        f"{remedy}. Each table says this once"
    )


def _info_of(drawn: Draw) -> SampleInfo:
    integers, floats = drawn.integers, drawn.floats
    return SampleInfo(
        drawn.keys,
        floats[PROBABILITY],
        integers[SIZE],
        floats[PRIORITY],
        integers[TIMES],
    )
