"""The inside of a replay of this process."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from headrace.checks import check_count
from headrace.clock import SYSTEM_CLOCK, Clock
from headrace.errors import Closed, SpecError
from headrace.forking import REPLAYS
from headrace.persist.disk.disk import Disk
from headrace.persist.disk.writer_counts import WriterCounts
from headrace.persist.states import ReplayState
from headrace.replay.declarations import Declarations
from headrace.replay.item_keys import ItemKeys, StoredKeys
from headrace.replay.lifetime import Lifetime
from headrace.replay.open_writers import OpenWriters
from headrace.replay.sampling.sampler import Sampling
from headrace.spec import Signature, maker_for
from headrace.statistics import FrozenDict, ReplayStatistics
from headrace.store.pages.held_pages import HeldPages
from headrace.store.store import Store
from headrace.tables.custom_ring import new_ring
from headrace.tables.description.table import Table, kernel_selectors
from headrace.tables.item_memory import ItemMemory
from headrace.tables.item_ring import ItemRing
from headrace.tables.item_state import ItemState
from headrace.tables.live_table import LiveTable

STAYS_HERE = (
    "a Replay lives in the process that made it and cannot be pickled or copied; for a copy in another process "
    "save a checkpoint with replay.save(folder), and read it there with Replay.load(folder)"
)


class ReplayCore:
    """A store with its tables; see `LocalReplay`, which it implements. Checkpoints work on it, too.

    Args: as `Replay`, which users see.
    """

    def __init__(
        self,
        signature: Signature,
        tables: Iterable[Table],
        *,
        capacity: int | None = None,
        path: str | os.PathLike[str] | None = None,
        seed: int | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        if not isinstance(signature, Signature):
            raise TypeError(
                f"signature: expected a Signature, got {type(signature).__name__}; {maker_for(signature)} makes one"
            )
        if not signature.nbytes:
            raise SpecError(f"signature: expected a step with at least one value, got {signature!r}")
        capacity = None if capacity is None else check_count("capacity", capacity, 1)
        descriptions = checked_tables(tables)
        random = np.random.default_rng(None if seed is None else check_count("seed", seed, 0))
        if path is None:
            self._begin(Store(signature, capacity), random, clock)
            self._use((table, self._new_ring(table), None) for table in descriptions)
        else:
            names = [table.name for table in descriptions]
            for table in descriptions:
                kernel_selectors(table)
            self._begin_on_disk(Disk(path, signature, names, capacity), descriptions, random, clock)

    def _begin_on_disk(
        self, disk: Disk, tables: Sequence[Table], random: np.random.Generator, clock: Clock
    ) -> None:
        try:
            self._begin(disk.store, random, clock, disk)
            rings = disk.open_rings(tables, random)
            self._use((table, ring, disk.counts_of(ring)) for table, ring in zip(tables, rings, strict=True))
            self.declarations.restore_paddings(disk.read_paddings(), self._tables)
            for live in self._tables.values():
                live.keep_to_settings()
            disk.begin(random)
        except BaseException:
            disk.abandon()
            raise

    def _begin(
        self, store: Store, random: np.random.Generator, clock: Clock, disk: Disk | None = None
    ) -> None:
        self.store = store
        self.store.who_holds = _forgetful(self._who_holds)
        self.lock: threading.RLock = self.store.lock
        self.clock = clock
        self._random = random
        self.sampling = Sampling(store, random, clock, frozenset() if disk is None else disk.header.given)
        self._disk = disk
        self.lifetime = Lifetime()
        self.keys = ItemKeys(self.lifetime) if disk is None else StoredKeys.of(self.lifetime, disk.header)
        self.declarations = Declarations(store.signature, self.sampling, self.lifetime, self.lock, disk)

    def _new_ring(self, table: Table, loaded: ItemMemory | None = None) -> ItemRing:
        return new_ring(self.store, table.max_size, table.sampler, table.remover, self._random, loaded)

    def _use(self, tables: Iterable[tuple[Table, ItemRing, Mapping[str, int] | None]]) -> None:
        self._tables = {
            table.name: LiveTable(table, self.store, ring, self.clock.monotonic, counts)
            for table, ring, counts in tables
        }
        self.writers = OpenWriters(self.lifetime, self.lock, self._tables)
        REPLAYS.add(self)

    @property
    def signature(self) -> Signature:
        """The signature of one step."""
        return self.store.signature

    @property
    def final_columns(self) -> frozenset[str]:
        """The columns that final rows hold values of, the same in all; empty before the first is declared."""
        return self.sampling.given

    # ---- tables ----------------------------------------------------------------------------------------------------

    @property
    def table_names(self) -> tuple[str, ...]:
        """The names of the tables, in the order given."""
        return tuple(self._tables)

    def descriptions(self) -> list[Table]:
        """Returns the tables with their present settings."""
        self.check_open()
        return [live.description() for live in self._tables.values()]

    def live_table(self, name: str) -> LiveTable:
        """Returns the state of a table.

        Raises:
            KeyError: no such table; the message has the known names.
            Closed: the replay is closed.
        """
        if self.lifetime.is_closed:
            self.check_open()
        live = self._tables.get(name)
        if live is None:
            raise KeyError(f"no table {name!r}; there are {', '.join(map(repr, self._tables))}")
        return live

    def statistics(self) -> ReplayStatistics:
        """See `Replay.statistics`."""
        with self.lock:
            self.check_open()
            return ReplayStatistics(
                FrozenDict({name: live.statistics() for name, live in self._tables.items()}),
                self.store.statistics(),
                self.clock.monotonic(),
            )

    def _who_holds(self) -> str:
        sizes = ", ".join(
            f"{name!r} {len(live.ring)} of {live.ring.max_size}" for name, live in self._tables.items()
        )
        pending = sum(live.statistics().pending_inserts for live in self._tables.values())
        return f"Items in tables: {sizes}; pending: {pending}; the rest is held by open writers and views. "

    def items_may_leave(self) -> bool:
        """Whether learners can be expected to let items leave: some table can free space by samples, and none waits.

        If a learner waits for items while a writer waits for a page, neither wait ends.
        """
        with self.lock:
            tables = self._tables.values()
            return not any(live.has_waiting for live in tables) and any(
                live.can_free_space for live in tables
            )

    # ---- checkpoints -----------------------------------------------------------------------------------------------

    def copy_state(self, held: HeldPages) -> ReplayState[ItemState]:
        """Returns the state of this instant without the rows.

        Args:
            held: holds the pages in use from here on, and copies their words.
        """
        buffers = {name: live.ring.buffers_for_copy() for name, live in self._tables.items()}
        with self.lock:
            self.check_open()
            tables = [live.copy(buffers[name]) for name, live in self._tables.items()]
            held.hold_all()
            return ReplayState(
                self.signature,
                self.store.capacity,
                tables,
                self.keys.next,
                int(self.store.next_episode[0]),
                self.sampling.given,
                self.declarations.plain_paddings(),
                self._random.bit_generator.state,
                self.keys.skipped,
            )

    @classmethod
    def of_state(cls, state: ReplayState[ItemMemory], store: Store) -> ReplayCore:
        """Returns a replay that continues a loaded state with the store of its rows."""
        core = cls.__new__(cls)
        random = np.random.default_rng(0)
        random.bit_generator.state = state.generator
        core._begin(store, random, SYSTEM_CLOCK)
        core._use((each.table, core._new_ring(each.table, each.items), each.counts) for each in state.tables)
        core.keys.next = state.next_key
        core.keys.skipped = state.skipped_keys
        core.sampling.know_given(state.given)
        core.declarations.restore_paddings(state.paddings, core._tables)
        store.next_episode[0] = state.next_episode
        for live in core._tables.values():
            live.keep_to_settings()
        return core

    # ---- on disk ---------------------------------------------------------------------------------------------------

    @property
    def writer_counts(self) -> WriterCounts | None:
        """The counts of clients' writers; None for a replay in memory. The lock must be held."""
        return None if self._disk is None else self._disk.writers()

    @property
    def is_on_disk(self) -> bool:
        """Whether rows and items are in files, which survive the process."""
        return self._disk is not None

    def sync(self) -> None:
        """Writes all applied changes to the disk, where they survive the machine. Other calls continue meanwhile.

        Raises:
            ValueError: the replay is in memory.
            Closed: the replay is closed.
        """
        if self._disk is None:
            raise ValueError("durable=True: this replay lives in memory, which does not survive the machine")
        self.check_open()
        self._disk.sync()

    # ---- closing ---------------------------------------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        """See `Lifetime.is_closed`."""
        return self.lifetime.is_closed

    def check_open(self) -> None:
        """See `Lifetime.check_open`."""
        self.lifetime.check_open()

    def close(self) -> None:
        """See `Replay.close`."""
        # A durable flush takes these two in the same order.
        with nullcontext() if self._disk is None else self._disk.syncing, self.lock:
            if self.is_closed:
                return
            try:
                self.lifetime.is_closed = True
                self._end_waits()
                if self._disk is None:
                    self.store.close()
                else:
                    self._disk.close(self._random, self.keys.next)
            except BaseException:
                # After Ctrl-C a second call does nothing, so all waits end here and the folder is released.
                self.lifetime.is_closed = True
                self._end_waits()
                self._let_go()
                raise

    def _end_waits(self) -> None:
        for live in self._tables.values():
            live.fail(Closed("the replay is closed"))
            live.refuse_pending()

    def _let_go(self) -> None:
        if self._disk is None:
            self.store.close()
        else:
            self._disk.abandon()

    # ---- other processes -------------------------------------------------------------------------------------------

    def before_fork(self) -> None:
        """Takes the lock until `os.fork` has returned, so that no other thread holds it in the child."""
        self.lock.acquire()
        self.store.before_fork()

    def after_fork_in_parent(self) -> None:
        """Releases the lock."""
        self.store.after_fork_in_parent()
        self.lock.release()

    def after_fork_in_child(self) -> None:
        """Becomes a copy that refuses use: changes to it would not reach the parent. Other threads are gone."""
        self.store.after_fork_in_child()
        if self._disk is not None:
            self._disk.after_fork_in_child()
        for live in self._tables.values():
            live.forget_tickets()
            live.ring.memory.arena.make_private()
        # Their pools have locks, too.
        self.sampling.forget_plans()
        self.lifetime.become_inherited()
        self.lock.release()

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(STAYS_HERE)

    def __repr__(self) -> str:
        if self.is_closed:
            state = "of another process" if self.lifetime.is_inherited else "closed"
            return f"<Replay of {self.signature!r}: {state}>"
        tables = ", ".join(
            f"{name} {len(live.ring)}/{live.ring.max_size}" for name, live in self._tables.items()
        )
        return f"<Replay of {self.signature!r}: {tables}>"


def checked_tables(tables: Iterable[Table]) -> list[Table]:
    """Returns the tables of a replay; checks their names."""
    if isinstance(tables, Table):
        raise TypeError("tables: expected a list of Table, got one; put it into a list")
    descriptions = list(tables)
    if not descriptions:
        raise ValueError("tables: expected at least one Table, got none")
    names = [table.name for table in descriptions]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"tables: expected different names, got {', '.join(sorted(twice))} more than once")
    return descriptions


def _forgetful(method: Callable[[], str]) -> Callable[[], str]:
    """Returns a function that calls a method without keeping its object alive."""
    weak = weakref.WeakMethod(method)

    def call() -> str:
        found = weak()
        return "" if found is None else found()

    return call
