"""A replay as users see it: a store of steps with its tables, what writers write to and learners sample from."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headrace.checks import check_count, shown
from headrace.clock import SYSTEM_CLOCK, Clock
from headrace.persist.checkpoint import load as load_checkpoint
from headrace.persist.checkpoint import save as save_checkpoint
from headrace.replay.intake.writer import Writer
from headrace.replay.intake.writer_like import WriterLike
from headrace.replay.replay import STAYS_HERE, ReplayCore, checked_tables
from headrace.replay.sampling.replay_sample import ReplaySample
from headrace.replay.table_handle import TableHandle
from headrace.spec import Signature
from headrace.statistics import ReplayStatistics
from headrace.tables.description.rules import Rule
from headrace.tables.description.table import Table
from headrace.views.view import View


class Replay:
    """Steps, each stored once, and tables of items over them. Thread-safe.

    What a call has done when it returns is *queued* (gone with the process), *applied* (kept by a replay with a `path`
    when the process is killed) or *durable* (kept when the machine fails): see docs/durability.md.

    Args:
        signature: of one step.
        tables: at least one, with different names.
        capacity: number of steps that can be stored at least; None grows as they come, bounded by what items and
            writers hold.
        path: a folder, where rows and items then live, in files mapped into memory. They survive the process: a folder
            that holds a store is opened again, with all items that were applied. None keeps them in memory.
        seed: of the generator that draws; None takes one from the system. A store that was closed goes on as it was.
        clock: tells the time to deadlines; tests give one that they move.

    Raises:
        ValueError: no table, two of one name, capacity < 1; `path`, and a table with a `CustomSelector`.
        CheckpointError: `path` is in use, holds something else or another store, or is damaged; it was not changed.
        Unsupported: `path`, on another system than Linux.

    >>> import headrace as hr
    >>> table = hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=100)
    >>> replay = hr.Replay(hr.Signature.like({"observation": np.zeros(3, np.float32)}), [table], seed=0)
    >>> with replay.writer(items=[hr.ItemRule("t", length=1)]) as writer:
    ...     for _ in range(5):
    ...         writer.append({"observation": np.ones(3, np.float32)})
    >>> replay.sample("t", batch_size=2).data["observation"].shape
    (2, 3)
    >>> replay.close()
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
        self._core = ReplayCore(signature, tables, capacity=capacity, path=path, seed=seed, clock=clock)

    @property
    def signature(self) -> Signature:
        """The signature of one step."""
        return self._core.signature

    @property
    def final_columns(self) -> frozenset[str]:
        """The columns that final rows are given values of, all the same ones; empty before the first final row."""
        return self._core.sampling.given

    # ---- writing -----------------------------------------------------------------------------------------------------

    def writer(
        self,
        lanes: int = 1,
        items: Sequence[Rule] = (),
        history: int | None = None,
        max_pending: int = 1000,
        timeout: float | None = None,
    ) -> Writer:
        """A writer for `lanes` environments side by side.

        Args:
            lanes: steps of N environments are appended together, with a leading axis N, if it is above 1.
            items: rules for the windows that become items of tables automatically.
            history: how many of its newest rows each lane keeps in reach of `create_item`; by default what the item
                rules need, else the smaller of 1000 and a quarter of the capacity over the lanes.
            max_pending: items that may wait for a rate limiter; the next call that makes one waits.
            timeout: seconds of that wait; None waits for ever.

        Raises:
            KeyError: a rule names a table that is not there.
            ValueError: a number is too small.
        """
        return Writer(self.row_writer(lanes, items, history, max_pending, timeout))

    def row_writer(
        self,
        lanes: int = 1,
        items: Sequence[Rule] = (),
        history: int | None = None,
        max_pending: int = 1000,
        timeout: float | None = None,
    ) -> WriterLike:
        """A writer for code that checks steps itself and ends episodes lane by lane; see `writer`."""
        return self._core.writer(lanes, items, history, max_pending, timeout)

    # ---- sampling ----------------------------------------------------------------------------------------------------

    def sample(
        self,
        table: str,
        batch_size: int,
        *,
        views: Mapping[str, View] | None = None,
        timeout: float | None = None,
    ) -> ReplaySample:
        """Draw a batch, whole and in one instant, and copy its rows out.

        What the batch counts and removes is applied before it is handed out: a replay with a `path` keeps it when the
        process is killed.

        Args:
            table: its name.
            batch_size: how many items.
            views: what to present; None presents the signature's tree as it is stored. A function of
                `views.hindsight` is called last, outside the lock; what it raises comes from here, after the draw.
            timeout: seconds to wait for the rate limiter: None for ever, 0 not at all.

        Raises:
            DeadlineExceeded: the rate limiter did not open in time; nothing was taken or counted.
            ValueError: a batch_size < 1, or one that no insert could ever admit.
            KeyError: no such table.
            Closed: the replay is closed.
        """
        core = self._core
        return core.sampling.sample(
            core.live_table(table), check_count("batch_size", batch_size, 1), views, timeout
        )

    # ---- items -------------------------------------------------------------------------------------------------------

    def update_priorities(self, table: str, keys: ArrayLike, priorities: ArrayLike) -> int:
        """Set the priorities of items; of two entries for one key the last wins. Applied, when it returns.

        Args:
            table: its name.
            keys: [n]; keys of items that are gone are ignored and counted.
            priorities: [n], finite and >= 0.

        Returns:
            How many entries named an item that is there.

        Raises:
            ValueError: arrays of different lengths, a priority that is negative or not finite; nothing changes.
        """
        core = self._core
        live = core.live_table(table)
        wanted = _keys(keys)
        values = np.ascontiguousarray(priorities, np.float64).reshape(-1)
        if len(wanted) != len(values):
            raise ValueError(
                f"update_priorities: expected as many priorities as keys, got {len(values)} and {len(wanted)}"
            )
        with core.lock:
            core.check_open()
            applied = live.update(wanted, values)
        if applied < 0:
            bad = values[~(np.isfinite(values) & (values >= 0))][0]
            raise ValueError(
                f"update_priorities: expected finite priorities >= 0, got {bad}; nothing was changed"
            )
        return applied

    def delete(self, table: str, keys: ArrayLike) -> int:
        """Remove items; keys that are gone are ignored and counted. Returns how many there were; applied by then."""
        core = self._core
        live = core.live_table(table)
        wanted = _keys(keys)
        with core.lock:
            core.check_open()
            return live.delete(wanted)

    def reset(self, table: str) -> None:
        """Remove all items of a table and set its counts to 0; pending inserts go in by the fresh counts.

        Applied, when it returns.
        """
        core = self._core
        live = core.live_table(table)
        with core.lock:
            core.check_open()
            live.reset()

    def can_insert(self, table: str, n: int = 1) -> bool:
        """Whether n more items would be applied now, behind those already pending. Changes nothing."""
        core = self._core
        live = core.live_table(table)
        with core.lock:
            core.check_open()
            return live.can_insert(n)

    def can_sample(self, table: str, n: int = 1) -> bool:
        """Whether a batch of n would be served now. Changes nothing."""
        core = self._core
        live = core.live_table(table)
        with core.lock:
            core.check_open()
            return live.can_sample(n)

    # ---- tables ------------------------------------------------------------------------------------------------------

    def table(self, name: str) -> TableHandle:
        """A live table: its length, statistics and settings.

        Raises:
            KeyError: no such table, with the names of those there are.
            Closed: the replay is closed; so is what its tables are asked from then on.
        """
        # Not kept: it leads back here, and memory in a circle stays until the collector of garbage comes by.
        return TableHandle(self._core, self._core.live_table(name))

    @property
    def table_names(self) -> tuple[str, ...]:
        """In the order they were given."""
        return self._core.table_names

    def statistics(self) -> ReplayStatistics:
        """One frozen record of all tables and the store, taken at one instant."""
        return self._core.statistics()

    # ---- checkpoints -------------------------------------------------------------------------------------------------

    def save(self, directory: str | os.PathLike[str], *, keep: int | None = None) -> Path:
        """Write a checkpoint: rows, items, counts and the random generator, as they are at one instant.

        Writers and samples wait for the copy of the index, not for the disk. What is pending is not saved.

        Args:
            directory: a new folder is made in it. It is there complete or not at all, whenever the process dies.
            keep: remove older checkpoints that this function made beyond the newest `keep`; None removes none.

        Returns:
            The new folder. The names sort in the order of making.

        Raises:
            OSError: it could not be written; nothing is left behind and the replay goes on.
            ValueError: keep < 1.
            Closed: the replay is closed; or it has a `path` and was closed meanwhile, then nothing is left behind.

        >>> import tempfile, headrace as hr
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with hr.Replay(hr.Signature.like({"x": 0}), [hr.Table.queue("q", 9)]) as replay:
        ...         with replay.writer(items=[hr.ItemRule("q", 1)]) as writer:
        ...             writer.append({"x": 7})
        ...         path = replay.save(folder)
        ...     with hr.Replay.load(folder) as restored:
        ...         path.name, restored.sample("q", 1).data["x"]
        ('checkpoint-000000000001', array([7]))
        """
        return save_checkpoint(self._core, directory, keep)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, tables: Iterable[Table] | None = None) -> Self:
        """The replay of a checkpoint, in memory; the same calls give the same batches as the saved one would have.

        Writers are not restored. Keys of new items are above all that the saved replay can have used meanwhile.

        Args:
            path: a checkpoint's folder, or a directory of them: then the newest that is whole is taken, with a
                UserWarning for each newer one that is damaged.
            tables: tables of the same names, whose settings win over those saved; None takes the saved ones.

        Raises:
            CheckpointError: there is none, or it is damaged: names the file; or `tables` has other names.
        """
        loaded = cls.__new__(cls)
        loaded._core = load_checkpoint(
            path, None if tables is None else checked_tables(tables), ReplayCore.of_state
        )
        return loaded

    # ---- closing -----------------------------------------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        """Whether the replay was closed, or belongs to another process."""
        return self._core.is_closed

    def check_open(self) -> None:
        """Raise if the replay cannot be used here.

        Raises:
            Closed: it is closed.
            RuntimeError: this process was forked from the one that made it.
        """
        self._core.check_open()

    def close(self) -> None:
        """End every wait with `Closed`, refuse pending inserts, give the memory back. A second call does nothing.

        Every later call that asks for what it held or changes it raises `Closed`, those of its tables and writers too.
        In a forked child, which has a copy of the replay, nothing is to be done.
        """
        self._core.close()

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(STAYS_HERE)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return repr(self._core)


def core_of(replay: Replay) -> ReplayCore:
    """The inner state of a replay, for the parts of Headrace that work on its store in place.

    Raises:
        TypeError: the replay is a client's or a wrapper, which has no store here.
    """
    if not isinstance(replay, Replay):
        raise TypeError(
            "expected a Replay of this process, whose store can be reached, got "
            f"{type(replay).__name__}: {shown(replay)}"
        )
    return replay._core


def _keys(keys: ArrayLike) -> NDArray[np.uint64]:
    array = np.asarray(keys)
    if array.size and array.dtype.kind not in "iu":
        raise ValueError(f"keys: expected integers, got {array.dtype}")
    return np.ascontiguousarray(array, np.uint64).reshape(-1)
