"""The public replay: a store of steps with tables, for writers and learners."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from headrace.checks import check_count, check_seconds, shown
from headrace.clock import SYSTEM_CLOCK, Clock
from headrace.closing import Closing
from headrace.persist.checkpoint import load as load_checkpoint
from headrace.persist.checkpoint import save as save_checkpoint
from headrace.replay.given_priorities import checked_priorities
from headrace.replay.intake.row_writer import RowWriter
from headrace.replay.intake.writer import Writer
from headrace.replay.intake.writer_like import WriterLike
from headrace.replay.item_keys import checked_keys
from headrace.replay.items_by_key import all_keys, batches_of, remaining_items, wanted_keys
from headrace.replay.replay import STAYS_HERE, ReplayCore, checked_tables
from headrace.replay.sampling.drawing import DrawsBatches
from headrace.replay.sampling.replay_sample import ReplaySample
from headrace.replay.table_view import TableView
from headrace.spec import Signature
from headrace.statistics import ReplayStatistics
from headrace.tables.description.rules import Rule
from headrace.tables.description.table import Table
from headrace.views.view import View


class Replay(DrawsBatches, Closing):
    """Steps, each stored once, and tables of items over them. Thread-safe.

    When a call returns, its effect is *queued* (lost with the process), *applied* (kept by a replay with a `path` when
    the process is killed) or *durable* (kept when the machine fails): see docs/durability.md.

    Args:
        signature: of one step.
        tables: at least one, with different names.
        capacity: minimum number of steps that can be stored; None grows with the steps that items and writers hold.
        path: a folder for rows and items, in memory-mapped files that survive the process. A folder with a store is
            opened again, with all items that were applied. None keeps rows and items in memory.
        seed: of the random generator; None takes one from the system. A store that was closed continues its generator.
        clock: time for deadlines; tests pass a clock that they control.

    Raises:
        ValueError: no table; two tables of one name; capacity < 1; or a `path` with a `CustomSelector`.
        CheckpointError: `path` is in use, is damaged, or holds another store or other files; it was not changed.
        Unsupported: `path` on a system other than Linux.

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

    @classmethod
    def for_env(
        cls,
        env: Any,
        tables: Iterable[Table],
        *,
        extras: Any = None,
        capacity: int | None = None,
        path: str | os.PathLike[str] | None = None,
        seed: int | None = None,
    ) -> Self:
        """Returns a replay for the steps of an environment: observations and actions of its spaces, float32 rewards.

        Args:
            env: an environment, single or vector, which stays open and is not reset; the id of a registered one, or a
                callable that makes one, which is closed again.
            tables, capacity, path, seed: see `Replay`.
            extras: a tree of `ArraySpec`, the column `extras` that step writers fill; None for no such column.

        Raises:
            SpecError: a space without a fixed shape, or extras that are not a tree of `ArraySpec`.
            ValueError: a vector environment that does not declare its autoreset mode (see `hr.envs.adapt`).

        >>> import headrace as hr
        >>> with hr.Replay.for_env("CartPole-v1", [hr.Table.uniform(1000)]) as replay:
        ...     replay.signature.columns["reward"]
        float32[]
        """
        from headrace.envs.step_signature import signature_of_env  # Here: most replays are made without.

        signature = signature_of_env(env, {} if extras is None else {"extras": extras})
        return cls(signature, tables, capacity=capacity, path=path, seed=seed)

    @property
    def signature(self) -> Signature:
        """The signature of one step."""
        return self._core.signature

    @property
    def final_columns(self) -> frozenset[str]:
        """The columns for which final rows have values; empty before the first final row."""
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
        """Returns a writer for `lanes` environments; it checks every step.

        Args:
            lanes: number N of environments; above 1 their steps are appended together, with a leading axis N.
            items: rules for the windows that become items of tables automatically.
            history: number of newest rows that each lane keeps for `create_item`; by default the rows that the item
                rules need, else the smaller of 1000 and a quarter of the capacity divided by the lanes.
            max_pending: number of items that may wait for a rate limiter; the next call that makes an item waits.
            timeout: seconds of that wait; None waits without limit.

        Raises:
            KeyError: a rule names an unknown table.
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
        """Returns a writer for code that checks steps itself and ends episodes lane by lane; see `writer`."""
        return RowWriter(self._core, lanes, items, history, max_pending, timeout)

    # ---- sampling ----------------------------------------------------------------------------------------------------

    def _draw(
        self, table: str, batch_size: int, views: Mapping[str, View] | None, timeout: float | None
    ) -> ReplaySample:
        core = self._core
        return core.sampling.sample(
            core.live_table(table), check_count("batch_size", batch_size, 1), views, check_seconds(timeout)
        )

    # ---- items -------------------------------------------------------------------------------------------------------

    def get(self, table: str, keys: ArrayLike, *, views: Mapping[str, View] | None = None) -> ReplaySample:
        """Returns items by their keys, without sampling them: nothing is counted, removed or waited for.

        Args:
            table: name of the table.
            keys: integers [n], n >= 1; a key may come several times.
            views: the views, as for `sample`.

        Returns:
            A batch of the items in the order of the keys, as of `sample`. Its `probabilities` are NaN.

        Raises:
            ItemNotFound: some keys have no item (any more).
            ValueError: no keys.
            KeyError: no such table.
            Closed: the replay is closed.

        >>> import headrace as hr
        >>> with hr.Replay(hr.Signature.like({"x": 0}), [hr.Table.uniform(9)]) as replay:
        ...     with replay.writer() as writer:
        ...         for x in range(3):
        ...             writer.append({"x": x})
        ...             key = writer.create_item("replay", length=1)
        ...     replay.get("replay", [key])["x"], [batch["x"].tolist() for batch in replay.items("replay", 2)]
        (array([2]), [[0, 1], [2]])
        """
        live = self._core.live_table(table)
        return self._core.sampling.get(live, wanted_keys(keys), views)

    def items(
        self, table: str, batch_size: int = 1, *, views: Mapping[str, View] | None = None
    ) -> Iterator[ReplaySample]:
        """Iterates over the items of a table in the order of insertion, without sampling them.

        These are the items that the table has at this call. Each comes once, as it is when its batch is made, or not at
        all if it has left by then; items that are inserted later do not come. Writers and learners do not wait between
        batches. Memory: 8 bytes an item of the table, and one batch.

        Args:
            table: name of the table.
            batch_size: number of items of each batch; fewer where items have left, and at the end.
            views: the views, as for `sample`.

        Raises:
            ValueError: batch_size < 1.
            KeyError: no such table.
            Closed: the replay is closed, or is closed meanwhile.
        """
        core = self._core
        live, size = core.live_table(table), check_count("batch_size", batch_size, 1)
        return batches_of(all_keys(core, live), size, lambda keys: remaining_items(core, live, keys, views))

    def update_priorities(self, table: str, keys: ArrayLike, priorities: ArrayLike) -> int:
        """Sets the priorities of items; of two entries for one key the last one counts. Applied when it returns.

        Args:
            table: name of the table.
            keys: integers [n]; keys of removed items are ignored and counted.
            priorities: floats [n], finite and >= 0.

        Returns:
            The number of entries whose item exists.

        Raises:
            ValueError: arrays of different lengths, or a priority that is negative or not finite; nothing changes.
        """
        core = self._core
        live = core.live_table(table)
        wanted = checked_keys(keys)
        values = checked_priorities(priorities)
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
        """Removes items and returns their number; keys of removed items are ignored and counted. Applied on return."""
        core = self._core
        live = core.live_table(table)
        wanted = checked_keys(keys)
        with core.lock:
            core.check_open()
            return live.delete(wanted)

    def reset(self, table: str) -> None:
        """Removes all items of a table and sets its counts to 0; pending inserts continue with the new counts.

        Applied when it returns.
        """
        core = self._core
        live = core.live_table(table)
        with core.lock:
            core.check_open()
            live.reset()

    def can_insert(self, table: str, n: int = 1) -> bool:
        """Returns whether n more items would be applied now, after those already pending. Changes nothing."""
        core = self._core
        live, n = core.live_table(table), check_count("n", n, 1)
        with core.lock:
            core.check_open()
            return bool(live.can_insert(n))

    def can_sample(self, table: str, n: int = 1) -> bool:
        """Returns whether a batch of n would be served now. Changes nothing."""
        core = self._core
        live, n = core.live_table(table), check_count("n", n, 1)
        with core.lock:
            core.check_open()
            return bool(live.can_sample(n))

    # ---- tables ------------------------------------------------------------------------------------------------------

    def table(self, name: str) -> TableView:
        """Returns a live table: its length, statistics and settings.

        Raises:
            KeyError: no such table; the message has the known names.
            Closed: the replay is closed. Methods of its tables raise it, too.
        """
        # Not kept: it refers back to this object, and a reference cycle keeps memory until the garbage collector runs.
        return TableView(self._core, self._core.live_table(name))

    @property
    def table_names(self) -> tuple[str, ...]:
        """The names of the tables, in the order given."""
        return self._core.table_names

    def statistics(self) -> ReplayStatistics:
        """Returns one frozen record of all tables and the store at one instant."""
        return self._core.statistics()

    # ---- checkpoints -------------------------------------------------------------------------------------------------

    def save(self, directory: str | os.PathLike[str], *, keep: int | None = None) -> Path:
        """Writes a checkpoint: rows, items, counts and the random generator at one instant.

        Writers and samples wait for the copy of the index, not for the disk. Pending items are not saved.

        Args:
            directory: parent of the new folder. The folder is complete or absent, even if the process is killed.
            keep: removes all but the newest `keep` checkpoints that this function made; None removes none.

        Returns:
            The new folder. The names sort in the order of making.

        Raises:
            OSError: it could not be written; nothing is left behind and the replay stays usable.
            ValueError: keep < 1.
            Closed: the replay is closed; or it has a `path` and was closed during the save, which leaves nothing
            behind.

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
        """Returns the replay of a checkpoint, in memory. It draws the batches that the saved replay would have drawn.

        Writers are not restored. Keys of new items are above all keys that the saved replay may have used since.

        Args:
            path: a checkpoint's folder, or a directory of them, of which the newest complete one is loaded, with a
                UserWarning for each newer damaged one.
            tables: tables of the same names with new settings; None takes the saved settings.

        Raises:
            CheckpointError: there is no checkpoint; it is damaged (the message has the file); or `tables` has other
                names.
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
        """Raises if the replay cannot be used here.

        Raises:
            Closed: it is closed.
            RuntimeError: this process was forked from the one that made it.
        """
        self._core.check_open()

    def close(self) -> None:
        """Ends every wait with `Closed`, refuses pending inserts, and releases the memory. A second call does nothing.

        Later calls that read or change the contents raise `Closed`, also those of its tables and writers. In a forked
        child, which has a copy of the replay, this method does nothing.
        """
        self._core.close()

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(STAYS_HERE)

    def __repr__(self) -> str:
        return repr(self._core)


def core_of(replay: Replay) -> ReplayCore:
    """Returns the inside of a replay, for the parts of Headrace that work on its rows in place.

    Raises:
        TypeError: the replay is a client or a wrapper, which has no store in this process.
    """
    if not isinstance(replay, Replay):
        raise TypeError(
            "expected a Replay of this process, whose store can be reached, got "
            f"{type(replay).__name__}: {shown(replay)}"
        )
    return replay._core
