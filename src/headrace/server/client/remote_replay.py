"""A replay on a server."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headrace.checks import check_count
from headrace.closing import Closing
from headrace.errors import Closed
from headrace.replay.given_priorities import checked_priorities
from headrace.replay.intake.writer import Writer
from headrace.replay.item_keys import checked_keys
from headrace.replay.items_by_key import batches_of, wanted_keys
from headrace.replay.sampling.drawing import DrawsBatches
from headrace.replay.sampling.replay_sample import ReplaySample
from headrace.server.client.calls import Connected, ReplayCalls
from headrace.server.client.connecting import ServerAccess
from headrace.server.client.draws_ahead import DrawsAhead
from headrace.server.client.remote_table import RemoteTable
from headrace.server.client.sampling import RemoteSampling
from headrace.server.client.session import Session
from headrace.server.client.writers.row_writer import RemoteRowWriter, WrittenReplay
from headrace.server.messages.handshake import Served
from headrace.server.messages.requests import (
    CanInsert,
    CanSample,
    CheckOpen,
    Delete,
    GetFinalColumns,
    GetItems,
    GetRemaining,
    GetStatistics,
    ListKeys,
    Reset,
    SaveReplays,
    UpdatePriorities,
)
from headrace.spec import Signature
from headrace.statistics import FrozenDict, ReplayStatistics
from headrace.tables.description.rules import Rule
from headrace.views.view import View

# Larger counts of items mean the same.
_MOST = 1 << 62


class RemoteReplay(DrawsBatches, Closing):
    """A replay on a server, with the interface of `Replay`; made by `Client.replay`. Thread-safe.

    Calls raise the errors of `Replay`, and `Disconnected` if the server is gone. A sample is not repeated then, because
    a draw counts. Closing it closes neither the client nor the replay of the server.

    Args:
        client: has the connection.
        name: of the replay.
        served: its description.
    """

    def __init__(self, client: Connected, name: str, served: Served) -> None:
        self._name = name
        self._signature = Signature.from_json(served.signature)
        self._calls = ReplayCalls(client, name, self._signature)
        self._table_names = tuple(served.tables)
        self._sampling = RemoteSampling(self._calls, self._signature)
        self._writers: weakref.WeakSet[RemoteRowWriter] = weakref.WeakSet()

    # ---- description -----------------------------------------------------------------------------------------------

    @property
    def signature(self) -> Signature:
        """The signature of one step."""
        return self._signature

    @property
    def table_names(self) -> tuple[str, ...]:
        """The names of the tables, in their order."""
        return self._table_names

    @property
    def final_columns(self) -> frozenset[str]:
        """The columns for which final rows have values; empty before the first final row."""
        return frozenset(self._calls.repeated(GetFinalColumns(replay=self._name)).values)

    @property
    def is_closed(self) -> bool:
        """Whether this replay, its client, or the replay of the server was closed."""
        try:
            self.check_open()
        except Closed:
            return True
        return False

    def check_open(self) -> None:
        """Raises if the replay cannot be used.

        Raises:
            Closed: see `is_closed`.
        """
        self._calls.repeated(CheckOpen(replay=self._name))

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
    ) -> RemoteRowWriter:
        """Returns a writer of rows, which step writers and observers use; see `WriterLike`."""
        connection = self._calls.writers()
        written = WrittenReplay(self._name, self._signature, self._table_names)
        writer = RemoteRowWriter(connection, written, lanes, items, history, max_pending, timeout)
        self._writers.add(writer)
        return writer

    # ---- sampling --------------------------------------------------------------------------------------------------

    def _draw(
        self, table: str, batch_size: int, views: Mapping[str, View] | None, timeout: float | None
    ) -> ReplaySample:
        """Draws a batch; the arrays are the caller's own.

        Raises:
            TypeError: a view with a function, such as those of `views.hindsight`, or of a class of the caller's.
            Disconnected: the server is gone; a batch that was drawn is lost.
        """
        self._check_table(table)
        return self._sampling.sample(table, batch_size, views, timeout)

    def draws_ahead(
        self, table: str, batch_size: int, *, views: Mapping[str, View] | None = None
    ) -> DrawsAhead:
        """Returns a stream of batches of which several can be on their way; loaders use it.

        Raises:
            TypeError: see `sample`.
        """
        self._check_table(table)
        return DrawsAhead(self._sampling, table, batch_size, views)

    def _check_table(self, table: str) -> None:
        self._calls.check_open()
        if table not in self._table_names:
            raise KeyError(f"no table {table!r}; there are {', '.join(map(repr, self._table_names))}")

    # ---- items -----------------------------------------------------------------------------------------------------

    def get(self, table: str, keys: ArrayLike, *, views: Mapping[str, View] | None = None) -> ReplaySample:
        """Returns items by their keys, without sampling them; see `Replay.get`.

        Raises:
            TypeError: see `sample`.
            ValueError: no keys, or more items than fit into a message of the server.
            Disconnected: the server is gone.
        """
        self._check_table(table)
        request = GetItems(replay=self._name, table=table)
        batch = self._sampling.items(request, wanted_keys(keys), views)
        assert batch is not None
        return batch

    def items(
        self, table: str, batch_size: int = 1, *, views: Mapping[str, View] | None = None
    ) -> Iterator[ReplaySample]:
        """Iterates over the items of a table in the order of insertion, without sampling them; see `Replay.items`.

        Each batch is a request of its own. The keys, 8 bytes an item, come with the first.

        Raises:
            TypeError, ValueError, Disconnected: see `get`.
        """
        self._check_table(table)
        size = check_count("batch_size", batch_size, 1)
        _, payload = self._calls.exchanged(ListKeys(replay=self._name, table=table))
        keys = np.frombuffer(payload, "<u8").astype(np.uint64, copy=False)

        def find(keys: NDArray[np.uint64]) -> ReplaySample | None:
            return self._sampling.items(GetRemaining(replay=self._name, table=table), keys, views)

        return batches_of(keys, size, find)

    def update_priorities(self, table: str, keys: ArrayLike, priorities: ArrayLike) -> int:
        """Sets the priorities of items; see `Replay.update_priorities`."""
        self._check_table(table)
        wanted = checked_keys(keys).astype("<u8", copy=False)
        values = checked_priorities(priorities).astype("<f8", copy=False)
        request = UpdatePriorities(replay=self._name, table=table, keys=len(wanted))
        return int(self._calls.repeated(request, wanted.tobytes() + values.tobytes()).value)

    def delete(self, table: str, keys: ArrayLike) -> int:
        """Removes items and returns their number; see `Replay.delete`."""
        self._check_table(table)
        wanted = checked_keys(keys).astype("<u8", copy=False)
        return int(self._calls.repeated(Delete(replay=self._name, table=table), wanted.tobytes()).value)

    def reset(self, table: str) -> None:
        """Removes all items of a table; see `Replay.reset`. It is not repeated if the connection ends."""
        self._check_table(table)
        self._calls.once(Reset(replay=self._name, table=table))

    def can_insert(self, table: str, n: int = 1) -> bool:
        """Returns whether n more items would be applied now; see `Replay.can_insert`."""
        return self._can(CanInsert, table, n)

    def can_sample(self, table: str, n: int = 1) -> bool:
        """Returns whether a batch of n would be served now; see `Replay.can_sample`."""
        return self._can(CanSample, table, n)

    def _can(self, make: type[CanInsert | CanSample], table: str, n: int) -> bool:
        self._check_table(table)
        request = make(replay=self._name, table=table, n=min(check_count("n", n, 1), _MOST))
        return bool(self._calls.repeated(request).value)

    # ---- tables ----------------------------------------------------------------------------------------------------

    def table(self, name: str) -> RemoteTable:
        """Returns a live table: its length, statistics and settings.

        Raises:
            KeyError: no such table; the message has the known names.
        """
        self._check_table(name)
        return RemoteTable(self._calls, name, self._signature)

    def statistics(self) -> ReplayStatistics:
        """Returns one frozen record of all tables and the store at one instant."""
        record: ReplayStatistics = self._calls.repeated(GetStatistics(replay=self._name)).record
        return replace(record, tables=FrozenDict(record.tables))

    def save(self) -> Path:
        """Does the same as `Client.checkpoint`: all replays of the server are saved, to its own directory.

        Returns:
            The new folder of this replay, on the server's machine.

        Raises:
            CheckpointError, Disconnected: see `Client.checkpoint`.
        """
        return Path(self._calls.lasting(SaveReplays()).folders[self._name])

    # ---- closing ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Ends every wait of this replay with `Closed`, and refuses later calls. A second call does nothing.

        Its writers raise `Closed`, too; the message has the number of items that are not applied.
        """
        self._calls.close()
        for writer in tuple(self._writers):
            writer.end(Closed("the replay is closed"))

    def __reduce__(self) -> tuple[Callable[..., RemoteReplay], tuple[Any, ...]]:
        """A copy, such as that of a worker process, has a connection of its own."""
        return reopened, (self._calls.access, self._name)

    def reopened(self) -> RemoteReplay:
        """Returns the same replay over a connection of its own, which ends with it; also in a forked child.

        Raises:
            Disconnected, AuthenticationError, DeadlineExceeded, KeyError: see `Client` and `Client.replay`.
        """
        return reopened(self._calls.access, self._name)

    def __repr__(self) -> str:
        return f"<Replay {self._name!r} of {self._signature!r} on {self._calls.peer}>"


def reopened(access: ServerAccess, name: str) -> RemoteReplay:
    """Returns a replay over a connection of its own; see `RemoteReplay.reopened`."""
    session = Session(access)
    try:
        served = session.link().served
        if name not in served:
            raise KeyError(f"{session.peer} serves no {name!r}; there are {', '.join(map(repr, served))}")
        replay = RemoteReplay(session, name, served[name])
    except BaseException:
        session.abandon()
        raise
    weakref.finalize(replay, session.abandon).atexit = False
    return replay
