"""Several replays behind the interface of one."""

# Rules: collectors CY4

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headrace.checks import check_count
from headrace.clock import SYSTEM_CLOCK, Clock
from headrace.closing import Closing
from headrace.errors import Closed, Disconnected, HeadraceError, SpecError
from headrace.forking import HomeProcess
from headrace.replay.given_priorities import checked_priorities
from headrace.replay.intake.lane_count import checked_lanes
from headrace.replay.intake.writer import Writer
from headrace.replay.intake.writer_like import WriterLike
from headrace.replay.interface import ReplayLike
from headrace.replay.item_keys import checked_keys
from headrace.replay.items_by_key import wanted_keys
from headrace.replay.sampling.drawing import DrawsBatches
from headrace.replay.sampling.replay_sample import ReplaySample
from headrace.replay.shards.items import ShardedItems
from headrace.replay.shards.keys import split_keys
from headrace.replay.shards.merging import Merging, Request
from headrace.replay.shards.row_writer import ShardedRowWriter
from headrace.replay.shards.sampler import ShardSampler
from headrace.replay.shards.shard import Shard, ShardDown
from headrace.replay.shards.split import may_serve
from headrace.replay.shards.statistics import ShardedStatistics, ShardStatistics, sharded_statistics
from headrace.replay.shards.table import ShardedTable
from headrace.replay.shards.together import OneAfterAnother, Together
from headrace.spec import Signature, first_difference
from headrace.tables.description.rules import Rule
from headrace.views.view import View


class ShardedReplay(DrawsBatches, Closing):
    """Several replays, the shards, behind the interface of one. Thread-safe.

    A lane of a writer belongs to one shard: the lanes of all writers are numbered in the order in which the writers are
    made, and lane l is of shard `l % len(shards)`. A batch has the distribution of one replay with the items of all
    shards, and its keys and probabilities are those of the whole. Tables without weights (queues, stacks, heaps, custom
    samplers) keep their order within each shard, and shards give their draws in turn.

    A shard that cannot be reached is counted in `statistics().shards`, logged once, left out, and tried again after a
    pause.

    Args:
        shards: for each, a function that returns its replay, or raises `Disconnected`, `Closed` or `DeadlineExceeded`
            while it cannot be reached. It is called again after the replay was lost.
        seed: of the choice of shards; None takes one from the system.
        first_lane: number of this object's first lane, where several processes write to the same shards.
        together: makes the calls to several shards that sampling needs; closed with the replay. None makes them one
            after another.
        clock: for deadlines.

    Raises:
        ValueError: no shard, or shards with different tables.
        SpecError: shards with different signatures.
        ShardDown: none can be reached.

    >>> import headrace as hr
    >>> table = hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=100)
    >>> signature = hr.Signature.like({"x": 0})
    >>> replays = [hr.Replay(signature, [table]) for _ in range(2)]
    >>> with ShardedReplay([lambda replay=replay: replay for replay in replays], seed=0) as whole:
    ...     with whole.writer(lanes=4, items=[hr.ItemRule("t", 1)]) as writer:
    ...         writer.append({"x": [10, 11, 12, 13]})
    ...     sorted(set(whole.sample("t", 100)["x"].tolist())), [len(replay.table("t")) for replay in replays]
    ([10, 11, 12, 13], [2, 2])
    """

    def __init__(
        self,
        shards: Sequence[Callable[[], ReplayLike]],
        *,
        seed: int | None = None,
        first_lane: int = 0,
        together: Together | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        if not shards:
            raise ValueError("shards: expected at least one, got none")
        self._clock = clock
        self._is_closed = False
        self._lock = threading.Lock()
        self._together = OneAfterAnother() if together is None else together
        self._home = HomeProcess("this replay of several shards", "Make one in the process that uses it.")
        self._description: tuple[Signature, tuple[str, ...]] | None = None
        self._shards = [
            Shard(number, self._checked(number, open_replay), clock)
            for number, open_replay in enumerate(shards)
        ]
        first = next(iter(self._use_all(lambda replay: (replay.signature, replay.table_names)).values()))
        self._signature: Signature = first[0]
        self._table_names: tuple[str, ...] = first[1]
        self._sampler = ShardSampler(
            self._shards,
            Merging(len(shards)),
            np.random.default_rng(seed),
            clock,
            self._together,
            self.check_open,
        )
        self._items = ShardedItems(self._shards, self._use)
        self._next_lane = check_count("first_lane", first_lane, 0)

    def _checked(self, number: int, open_replay: Callable[[], ReplayLike]) -> Callable[[], ReplayLike]:
        """Returns the function that opens a shard and compares it with the first one."""

        def opened() -> ReplayLike:
            replay = open_replay()
            replay.check_open()
            with self._lock:
                if self._description is None:
                    self._description = replay.signature, replay.table_names
                signature, tables = self._description
            if difference := first_difference(signature, replay.signature):
                raise SpecError(f"shard {number}: {difference}")
            if tables != replay.table_names:
                raise ValueError(f"shard {number}: expected the tables {tables}, got {replay.table_names}")
            return replay

        return opened

    def _use_all(self, call: Callable[[ReplayLike], Any]) -> dict[int, Any]:
        """Returns the results of a call with every shard that can be reached, by its number.

        Raises:
            ShardDown: none can.
        """
        return self._use(dict.fromkeys(range(len(self._shards)), call))

    def _use(self, calls: Mapping[int, Callable[[ReplayLike], Any]]) -> dict[int, Any]:
        """Returns the results of calls with some shards, of those that can be reached, by number.

        Raises:
            ShardDown: none of all shards can.
        """
        self.check_open()
        for shard in self._shards:
            shard.try_again()
        answers = self._together(
            [partial(self._shards[number].attempt, call) for number, call in calls.items()]
        )
        found, down = {}, None
        for number, answer in zip(calls, answers, strict=True):
            if isinstance(answer, ShardDown):
                down = answer
            elif isinstance(answer, HeadraceError):
                raise answer
            else:
                found[number] = answer
        if down is not None and all(shard.is_down for shard in self._shards):
            raise down
        return found

    def _use_every(self, what: str, call: Callable[[ReplayLike], Any]) -> None:
        """Makes a call with all shards.

        Raises:
            Disconnected: it was not made with those that are down.
        """
        done = self._use_all(call)
        missing = [shard.number for shard in self._shards if shard.number not in done]
        if missing:
            raise Disconnected(f"{what}: shards {missing} are down; it is done in the others")

    # ---- description -----------------------------------------------------------------------------------------------

    @property
    def signature(self) -> Signature:
        """The signature of one step."""
        return self._signature

    @property
    def final_columns(self) -> frozenset[str]:
        """The columns for which final rows have values; empty before the first final row."""
        return frozenset().union(*self._use_all(lambda replay: replay.final_columns).values())

    @property
    def table_names(self) -> tuple[str, ...]:
        """The names of the tables, in their order."""
        return self._table_names

    @property
    def is_closed(self) -> bool:
        """Whether it was closed, or belongs to another process."""
        return self._is_closed or self._home.is_elsewhere

    def check_open(self) -> None:
        """Raises if the replay cannot be used.

        Raises:
            Closed: it is closed.
            RuntimeError: this process was forked from the one that made it.
        """
        if self._is_closed:
            raise Closed("the replay is closed")
        self._home.check()

    # ---- writing ---------------------------------------------------------------------------------------------------

    def writer(
        self,
        lanes: int = 1,
        items: Sequence[Rule] = (),
        history: int | None = None,
        max_pending: int = 1000,
        timeout: float | None = None,
    ) -> Writer:
        """See `Replay.writer`."""
        return Writer(self.row_writer(lanes, items, history, max_pending, timeout))

    def row_writer(
        self,
        lanes: int = 1,
        items: Sequence[Rule] = (),
        history: int | None = None,
        max_pending: int = 1000,
        timeout: float | None = None,
    ) -> WriterLike:
        """Returns a writer for code that checks steps itself and ends episodes lane by lane; see `Replay.writer`.

        Each shard may have an equal part of `max_pending` items pending.
        """
        self.check_open()
        lanes = checked_lanes(lanes, self.signature)
        for rule in items:
            self._check_table(rule.table)
        pending = -(-check_count("max_pending", max_pending, 1) // min(lanes, len(self._shards)))

        def open_writer(replay: ReplayLike, count: int) -> WriterLike:
            return replay.row_writer(count, items, history, pending, timeout)

        with self._lock:
            first = self._next_lane
            self._next_lane += lanes
        return ShardedRowWriter(
            self._signature, lanes, self._shards, first, open_writer, self.check_open, self._clock
        )

    # ---- sampling --------------------------------------------------------------------------------------------------

    def _draw(
        self, table: str, batch_size: int, views: Mapping[str, View] | None, timeout: float | None
    ) -> ReplaySample:
        """Draws a batch from the shards.

        A batch that ends by an error or a deadline keeps the draws that shards have made: the next call with the same
        table, size and views completes it.
        """
        self.check_open()
        self._check_table(table)
        request = Request(
            table, check_count("batch_size", batch_size, 1), None if views is None else dict(views)
        )
        return self._sampler.sample(request, timeout)

    def _check_table(self, table: str) -> None:
        if table not in self._table_names:
            raise KeyError(f"no table {table!r}; there are {', '.join(map(repr, self._table_names))}")

    # ---- items -----------------------------------------------------------------------------------------------------

    def get(self, table: str, keys: ArrayLike, *, views: Mapping[str, View] | None = None) -> ReplaySample:
        """Returns items by their keys, without sampling them; see `Replay.get`.

        Raises:
            ItemNotFound: some keys have no item.
            Disconnected: the shard of some keys is down.
        """
        self.check_open()
        self._check_table(table)
        wanted = wanted_keys(keys)
        return self._items.get(Request(table, len(wanted), views), wanted)

    def items(
        self, table: str, batch_size: int = 1, *, views: Mapping[str, View] | None = None
    ) -> Iterator[ReplaySample]:
        """Iterates over the items of a table without sampling them, shard by shard; see `Replay.items`.

        Each shard's items come in the order of insertion. The items of a shard that is down are left out.
        """
        self.check_open()
        self._check_table(table)
        return self._items.batches(Request(table, check_count("batch_size", batch_size, 1), views))

    def update_priorities(self, table: str, keys: ArrayLike, priorities: ArrayLike) -> int:
        """Sets the priorities of items; see `Replay.update_priorities`. Items of a shard that is down are left out."""
        self.check_open()
        self._check_table(table)
        wanted = checked_keys(keys)
        values = checked_priorities(priorities)
        if len(wanted) != len(values):
            raise ValueError(
                f"update_priorities: expected as many priorities as keys, got {len(values)} and {len(wanted)}"
            )
        is_good = np.isfinite(values) & (values >= 0)
        if not is_good.all():
            raise ValueError(
                f"update_priorities: expected finite priorities >= 0, got {values[~is_good][0]}; nothing was changed"
            )

        def update(replay: ReplayLike, keys: NDArray[np.uint64], places: NDArray[np.int64]) -> int:
            return replay.update_priorities(table, keys, values[places])

        return self._for_keys(wanted, update)

    def delete(self, table: str, keys: ArrayLike) -> int:
        """Removes items and returns their number; see `Replay.delete`. Items of a shard that is down are left out."""
        self.check_open()
        self._check_table(table)

        def remove(replay: ReplayLike, keys: NDArray[np.uint64], places: NDArray[np.int64]) -> int:  # noqa: ARG001
            return replay.delete(table, keys)

        return self._for_keys(checked_keys(keys), remove)

    def _for_keys(
        self,
        keys: NDArray[np.uint64],
        call: Callable[..., int],
    ) -> int:
        """Makes a call for the keys of each shard, with their places; returns the sum of the results."""
        owners, own_keys = split_keys(keys, len(self._shards))
        calls = {}
        for number in np.unique(owners).tolist():
            places = np.flatnonzero(owners == number)
            calls[number] = partial(call, keys=own_keys[places], places=places)
        return sum(self._use(calls).values())

    def reset(self, table: str) -> None:
        """Removes all items of a table; see `Replay.reset`.

        Raises:
            Disconnected: a shard is down; the table is reset in the others.
        """
        self.check_open()
        self._check_table(table)
        self._sampler.forget(table)
        self._use_every("reset", lambda replay: replay.reset(table))

    def can_insert(self, table: str, n: int = 1) -> bool:
        """Returns whether every shard would apply its equal part of n items now; see `Replay.can_insert`."""
        self.check_open()
        self._check_table(table)
        part = -(-check_count("n", n, 1) // len(self._shards))
        return all(self._use_all(lambda replay: replay.can_insert(table, part)).values())

    def can_sample(self, table: str, n: int = 1) -> bool:
        """Returns whether a batch of n would be served now; see `Replay.can_sample`.

        A sampler with weights may ask one shard for more than its part of the batch, and wait for it.
        """
        self.check_open()
        self._check_table(table)
        n = check_count("n", n, 1)
        return not self._sampler.waiting(table) and may_serve(self._sampler.records(table), n)

    # ---- tables ----------------------------------------------------------------------------------------------------

    def table(self, name: str) -> ShardedTable:
        """Returns a live table: its length, statistics and settings.

        Raises:
            KeyError: no such table; the message has the known names.
            Closed: the replay is closed.
        """
        self.check_open()
        self._check_table(name)
        return ShardedTable(name, self._shards, self._sampler, self.check_open)

    def statistics(self) -> ShardedStatistics:
        """Returns one frozen record: sums over the shards, and `shards` with a record of each."""
        found = self._use_all(lambda replay: replay.statistics())
        shards = [
            ShardStatistics(
                shard.number,
                shard.is_down,
                shard.losses,
                shard.last_error,
                shard.rows_dropped,
                found.get(shard.number),
            )
            for shard in self._shards
        ]
        return sharded_statistics(shards, self._clock.monotonic())

    # ---- closing ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Closes the replays of all shards, and ends every wait with `Closed`. A second call does nothing."""
        if self.is_closed:
            return
        self._is_closed = True
        for shard in self._shards:
            shard.close()
        self._sampler.end_waits()
        self._together.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self._shards)} shards of {self._signature!r}>"
