"""Contract of grantors of leases: Headrace's own for workers, one behind a socket, and yours."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np

from headrace.errors import Disconnected
from headrace.leases.channel import Channel
from headrace.leases.lane_writer import LaneWriter
from headrace.leases.messages import Ack, Commit, Lease, Pin, Return, Unpin, packed
from headrace.leases.writing.page_writer import PageWriter, Purpose
from headrace.replay.public import Replay, core_of
from headrace.spec import Signature
from headrace.tables.description.rules import ItemRule
from headrace.tables.description.selectors import Fifo, Uniform
from headrace.tables.description.table import Table
from headrace.testing.pytest_hypothesis import given_contract, hypothesis, pytest, strategies
from headrace.views.view import View

_SIGNATURE = Signature.like({"observation": np.zeros(3, np.int64), "action": np.int64(0)})
_RULES = [ItemRule("t", 1, lookahead=1)]
_VIEWS = {
    "observation": View("observation"),
    "next_observation": View("observation", shift=1),
    "action": View("action"),
}
_SECONDS = 20.0


class Granted(ABC):
    """The grantor's side of one connection, and the peer's end of it.

    Attributes:
        channel: the peer's end.
        ended: set when the grantor has given everything back.
        error: what ended the connection; None: the peer left.
    """

    channel: Channel
    ended: threading.Event
    error: BaseException | None

    @abstractmethod
    def pin(self, pages: Sequence[int]) -> None:
        """Pins pages for the peer."""


class _Leases:
    """The pages and acknowledgements that a peer's writer receives.

    Args:
        granted: its connection.
    """

    def __init__(self, granted: Granted) -> None:
        self._channel = granted.channel
        self.pages: dict[Purpose, deque[int]] = {"rows": deque(), "finals": deque()}
        self.acked = 0
        self.frames = 0

    def _next_page(self, purpose: Purpose) -> int:
        while not self.pages[purpose]:
            self.receive()
        return self.pages[purpose].popleft()

    def receive(self) -> Any:
        """Receives the next message, applies it, and returns it."""
        message = self._channel.receive().message
        if isinstance(message, Lease):
            self.pages[message.purpose].append(message.page)
        elif isinstance(message, Ack):
            self.acked = message.sequence
        return message

    def wait(self, sequence: int) -> None:
        """Waits until a commit is acknowledged."""
        while self.acked < sequence:
            self.receive()


class LeaseWriter(_Leases):
    """A peer's writer of counters: lane k shows `[k, episode, step]` and acts `step`.

    Args:
        replay: whose rows are written in place.
        granted: its connection.
        lanes: of the writer.
        writer: its number.
    """

    def __init__(self, replay: Replay, granted: Granted, lanes: int, writer: int = 0) -> None:
        super().__init__(granted)
        store = core_of(replay).store
        self.writer = PageWriter(
            store.columns, store.arrays.page_rows, ["observation"], lanes, self._next_page, writer
        )
        self._seen = np.zeros((lanes, 3), np.int64)
        self._seen[:, 0] = np.arange(lanes) + 100 * writer
        self.writer.begin({"observation": self._seen})

    def step(self, ended: Sequence[int] = ()) -> None:
        """Writes one vector step, with which the lanes `ended` end their episode."""
        writer, lanes = self.writer, np.asarray(ended, np.int64)
        self._seen[:, 2] += 1
        last = {"observation": self._seen.copy()}
        self._seen[lanes, 1] += 1
        self._seen[lanes, 2] = 0
        writer.next_row["observation"][...] = self._seen
        writer.record({"action": writer.row["observation"][:, 2]}, 1, ended=lanes, last=last)
        self.frames += len(self._seen)

    def commit(self) -> Commit:
        """Reports the rows written, and waits for the acknowledgement."""
        commit = self.writer.report()
        self._channel.send(commit)
        self.wait(commit.sequence)
        self.writer.turn()
        return commit

    def run(self, steps: int, length: int = 4) -> None:
        """Writes and commits steps; episodes have `length` transitions in lane 0, one more in each further lane."""
        for number in range(steps):
            lengths = length + np.arange(len(self._seen))
            self.step(np.flatnonzero(self._seen[:, 2] + 1 >= lengths).tolist())
            if self.writer.must_report or number + 1 == steps:
                self.commit()


class UnevenWriter(_Leases):
    """A peer's writer of the same counters, whose lanes take steps independently.

    Args: as `LeaseWriter`.
    """

    def __init__(self, replay: Replay, granted: Granted, lanes: int) -> None:
        super().__init__(granted)
        store = core_of(replay).store
        self.writer = LaneWriter(
            store.columns, store.arrays.page_rows, ["observation"], lanes, self._next_page
        )
        self._seen = np.zeros((lanes, 3), np.int64)
        self._seen[:, 0] = np.arange(lanes)
        self.writer.begin(np.arange(lanes), {"observation": self._seen})

    def step(self, lanes: Sequence[int], ended: Sequence[int] = ()) -> None:
        """Writes one step of some lanes; with it `ended` end their episodes and begin the next."""
        taken, over = np.asarray(lanes, np.int64), np.asarray(ended, np.int64)
        action = self._seen[taken, 2]
        self._seen[taken, 2] += 1
        self.writer.append(taken, {"action": action}, {"observation": self._seen[taken]}, 1)
        self.writer.end(over)
        self._seen[over, 1] += 1
        self._seen[over, 2] = 0
        self.writer.begin(over, {"observation": self._seen[over]})
        self.frames += len(taken)

    def commit(self) -> None:
        """Reports what can be reported, and waits for the acknowledgements."""
        for commit in self.writer.flush():
            self._channel.send(commit)
        self.wait(self.writer.sequence)


class LeaseContract(ABC):
    """Tests of a grantor of leases. Derive from it and define how a peer connects; pytest does the rest.

    The grantor checks every message before it relies on it. A message that does not continue the committed rows ends
    the connection and changes nothing. Acknowledged rows are in the replay. However a connection ends, its pages and
    pins are returned.
    """

    @abstractmethod
    def connect(self, replay: Replay, lanes: Sequence[int], rules: Sequence[ItemRule]) -> Granted:
        """Connects a peer with a writer of `lanes[k]` lanes under each number k; final rows hold "observation".

        A page that is not free is leased as soon as it is, as long as items can be expected to leave.
        """

    # ---- what is committed -----------------------------------------------------------------------------------------

    @pytest.mark.parametrize("lanes", [1, 3])
    def test_what_is_acknowledged_is_in_the_replay(self, lanes: int) -> None:
        """Each transition becomes an item once what followed it is known, over many pages."""
        with _connected(self, [lanes]) as (replay, granted):
            writer = LeaseWriter(replay, granted, lanes)
            writer.run(200)
            count = len(replay.table("t"))
            assert writer.frames - lanes <= count <= writer.frames, "items are missing, or doubled"
            _check(replay, count)

    def test_lanes_of_different_lengths(self) -> None:
        """Lanes take steps independently: a slow lane holds others back no longer than its episode lasts."""
        with _connected(self, [3]) as (replay, granted):
            writer = UnevenWriter(replay, granted, 3)
            for number in range(150):
                lanes = [0, *([1] if number % 2 == 0 else []), *([2] if number % 5 == 0 else [])]
                writer.step(lanes, [lane for lane in lanes if number % (3 + lane) == 0])
                writer.commit()
                if not writer.writer.free.all():
                    slow = np.flatnonzero(writer.writer.free == writer.writer.free.max())
                    writer.step(slow.tolist(), slow.tolist())
                    writer.commit()
            count = len(replay.table("t"))
            assert writer.frames - 3 * 31 <= count <= writer.frames
            _check(replay, count)

    def test_a_cut_ends_every_open_episode(self) -> None:
        """The data that followed the last step are in a final row."""
        with _connected(self, [2]) as (replay, granted):
            writer = LeaseWriter(replay, granted, 2)
            writer.run(3, length=10)
            writer.writer.cut()
            writer.commit()
            assert len(replay.table("t")) == 6, "the last transitions of episodes that were cut are no items"
            _check(replay, 6)

    def test_a_repeated_commit_is_acknowledged_and_not_applied_again(self) -> None:
        """A peer that did not hear of an acknowledgement sends its commit again."""
        with _connected(self, [2]) as (replay, granted):
            writer = LeaseWriter(replay, granted, 2)
            writer.step()
            writer.step([1])
            commit = writer.commit()
            before = _state(replay)
            for _ in range(3):
                writer.acked = 0
                granted.channel.send(commit)
                writer.wait(commit.sequence)
            assert _state(replay) == before
            writer.run(50)
            _check(replay, len(replay.table("t")))

    def test_several_writers_of_one_connection(self) -> None:
        """Each has lanes, pages and a sequence of its own."""
        with _connected(self, [1, 3]) as (replay, granted):
            one, two = _Shared(replay, granted, [1, 3]).writers
            for _ in range(20):
                one.run(7)
                two.run(3)
            _check(replay, len(replay.table("t")))
            assert len(replay.table("t")) >= one.frames + two.frames - 4

    def test_a_page_that_is_returned_is_left(self) -> None:
        """The next block begins in the page that was leased next; the episode goes on."""
        with _connected(self, [2]) as (replay, granted):
            writer = LeaseWriter(replay, granted, 2)
            for _ in range(30):
                writer.step()
                writer.commit()
                message = writer.writer.page_return
                assert isinstance(message, Return)
                granted.channel.send(message)
                writer.writer.begin_block()
            writer.step()
            writer.commit()
            assert len(replay.table("t")) == 2 * 30
            _check(replay, 60)

    # ---- what is refused -------------------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        "change",
        [
            {"writer": 1},
            {"sequence": 3},
            {"page": 10**9},
            {"page": -1},
            {"steps": -1},
            {"steps": 10**12},
            {"steps": 0, "versions": b""},
            {"versions": b"123"},
            {"versions": b""},
            {"final": packed([2])},
            {"final": packed([-1])},
            {"idle": packed([0])},
            {"idle": packed([3, 2])},
            {"ended": packed([0, 0]), "final_rows": packed([0, 1])},
            {"ended": packed([99]), "final_rows": packed([0])},
            {"ended": packed([0])},
            {"final_rows": packed([0])},
            {"ended": packed([0]), "final_rows": packed([-1])},
            {"ended": packed([0]), "final_rows": packed([10**12])},
            {"cut": packed([2]), "final_rows": packed([0])},
            {"cut": packed([1, 0]), "final_rows": packed([0, 1])},
        ],
    )
    def test_a_bad_commit_changes_nothing(self, change: dict[str, Any]) -> None:
        """It ends the connection with an error; what was committed before stays."""
        with _connected(self, [2]) as (replay, granted):
            writer = LeaseWriter(replay, granted, 2)
            writer.run(2, length=10)
            writer.step()
            before = _state(replay)
            granted.channel.send(msgspec.structs.replace(writer.writer.report(), **change))
            assert granted.ended.wait(_SECONDS)
            assert granted.error is not None
            assert not isinstance(granted.error, Disconnected), f"it ended with {granted.error!r}"
            assert _state(replay) == before
            _nothing_is_held(replay)

    @hypothesis.settings(given_contract, max_examples=40)
    @hypothesis.given(strategies.data())
    def test_any_commit_is_taken_whole_or_refused(self, data: Any) -> None:
        """Numbers of all sizes, in any order: never more items than the steps that were acknowledged have."""
        rows = strategies.lists(strategies.integers(-2, 12), max_size=4).map(packed)
        with _connected(self, [2]) as (replay, granted):
            writer = LeaseWriter(replay, granted, 2)
            frames = 0
            for sequence in range(1, 4):
                commit = Commit(
                    writer=0,
                    sequence=data.draw(strategies.sampled_from([sequence, sequence, 1, 7])),
                    page=writer.writer.page,
                    steps=(steps := data.draw(strategies.integers(0, 3))),
                    versions=packed([1] * steps, np.dtype("<i4")),
                    final=data.draw(strategies.just(b"") | rows),
                    idle=data.draw(strategies.just(b"") | rows),
                    ended=data.draw(strategies.just(b"") | rows),
                    cut=data.draw(strategies.just(b"") | rows),
                    final_rows=data.draw(strategies.just(b"") | rows),
                )
                before = len(replay.table("t"))
                try:
                    granted.channel.send(commit)
                    writer.wait(commit.sequence)
                except Disconnected:
                    assert granted.ended.wait(_SECONDS)
                    assert len(replay.table("t")) == before, "a commit that was refused has made items"
                    break
                frames += 2 * steps
                assert len(replay.table("t")) <= frames
        # `_connected` has looked that all pages are given back.

    @hypothesis.settings(given_contract, max_examples=40)
    @hypothesis.given(strategies.binary(min_size=1, max_size=200), strategies.booleans())
    def test_any_bytes_end_their_own_connection(self, garbage: bytes, after_a_greeting: bool) -> None:
        """Neither other peers nor what is stored are touched."""
        with _connected(self, [2]) as (replay, granted):
            other = self.connect(replay, [1], _RULES)
            with _closed(other):
                writer = LeaseWriter(replay, other, 1)
                writer.run(3)
                before = _state(replay)
                if after_a_greeting:
                    LeaseWriter(replay, granted, 2).run(0)
                    granted.channel.send(Unpin(pages=[]))
                _send_raw(granted.channel, garbage)
                granted.channel.shutdown()
                assert granted.ended.wait(_SECONDS)
                assert _state(replay) == before
                writer.run(3)

    # ---- ends ------------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("steps", [0, 1, 5, 30, 31, 64, 100])
    @pytest.mark.parametrize("unreported", [0, 2])
    def test_a_peer_that_vanishes(self, steps: int, unreported: int) -> None:
        """Everything that it held is given back; what it had committed is kept."""
        with _connected(self, [2]) as (replay, granted):
            writer = LeaseWriter(replay, granted, 2)
            if steps:
                writer.run(steps)
            for _ in range(unreported):
                writer.step()
            granted.channel.close()
            assert granted.ended.wait(_SECONDS)
            _check(replay, len(replay.table("t")))
            # An end of a connection ends its episodes: the newest transitions may have become items.
            assert 2 * steps - 2 <= len(replay.table("t")) <= 2 * steps
            _nothing_is_held(replay)

    def test_a_full_store_keeps_only_its_writer_waiting(self) -> None:
        """Another peer goes on, and the writer too when items have left."""
        with _connected(self, [2], capacity=200, max_times_sampled=1) as (replay, granted):
            writer = LeaseWriter(replay, granted, 2)
            while writer.frames < 150:
                writer.run(1)
            other = self.connect(replay, [1], _RULES)
            with _closed(other):
                thread = threading.Thread(target=writer.run, args=(100,))
                thread.start()
                other_writer = LeaseWriter(replay, other, 1)
                other_writer.run(2)
                while thread.is_alive():
                    if len(replay.table("t")):
                        replay.sample("t", 1, timeout=_SECONDS)
                    thread.join(0.001)
                other_writer.run(2)

    # ---- pins ------------------------------------------------------------------------------------------------------

    def test_pinned_pages_stay_until_they_are_unpinned(self) -> None:
        """Also when no item holds them any more; the end of the connection unpins them."""
        with _connected(self, [2]) as (replay, granted):
            writer = LeaseWriter(replay, granted, 2)
            page = writer.writer.page
            writer.run(100)
            granted.pin([page, page])
            while not isinstance(message := writer.receive(), Pin):
                pass
            assert message.pages == [page, page]
            kept = core_of(replay).store.columns["observation"][page * 31 : page * 31 + 20].copy()
            replay.reset("t")
            writer.run(300)
            replay.reset("t")
            now = core_of(replay).store.columns["observation"][page * 31 : page * 31 + 20]
            np.testing.assert_array_equal(now, kept)
            granted.channel.send(Unpin(pages=[page]))
            writer.run(1)
            granted.channel.send(Unpin(pages=[page, page]))
            assert granted.ended.wait(_SECONDS)
            assert granted.error is not None, "a page was unpinned that was not pinned"
            _nothing_is_held(replay)


class _Shared:
    """Several writers that receive on one channel."""

    def __init__(self, replay: Replay, granted: Granted, lanes: Sequence[int]) -> None:
        self._writers: dict[int, Any] = {}
        self._waiting: dict[int, deque[Any]] = {number: deque() for number in range(len(lanes))}
        self._channel = granted.channel
        self.writers = [
            LeaseWriter(replay, SimpleNamespace(channel=_OwnMessages(self, number)), count, number)  # type: ignore[arg-type]
            for number, count in enumerate(lanes)
        ]

    def receive(self, number: int) -> Any:
        while not self._waiting[number]:
            frame = self._channel.receive()
            self._waiting[frame.message.writer].append(frame)
        return self._waiting[number].popleft()


class _OwnMessages:
    """The messages of one of several writers."""

    def __init__(self, shared: _Shared, number: int) -> None:
        self._shared, self._number = shared, number
        self.send = shared._channel.send

    def receive(self) -> Any:
        return self._shared.receive(self._number)


@contextmanager
def _connected(contract: LeaseContract, lanes: Sequence[int], capacity: int = 1000, **options: Any) -> Any:
    """A replay whose pages have 31 rows by default, and a peer; at the end all pages are free again."""
    table = Table("t", sampler=Uniform(replacement=False), remover=Fifo(), max_size=100_000, **options)
    with Replay(_SIGNATURE, [table], capacity=capacity) as replay:
        granted = contract.connect(replay, lanes, _RULES)
        with _closed(granted):
            yield replay, granted
        _nothing_is_held(replay)


@contextmanager
def _closed(granted: Granted) -> Any:
    try:
        yield
    finally:
        granted.channel.shutdown()
        assert granted.ended.wait(_SECONDS), "the grantor has not noticed the end of the connection"
        granted.channel.close()


def _send_raw(channel: Channel, data: bytes) -> None:
    with suppress(OSError):  # It was refused already.
        channel._socket.sendall(data)


def _state(replay: Replay) -> tuple[int, int]:
    """How many items there are, and the sum of what they show."""
    count = len(replay.table("t"))
    return count, core_of(replay).live_table("t").inserts


def _check(replay: Replay, count: int) -> None:
    """Every item is there once, with what truly followed it."""
    if not count:
        return
    data = replay.sample("t", count, views=_VIEWS, timeout=_SECONDS).data
    seen = data["observation"]
    assert len(np.unique(seen, axis=0)) == count, "a transition is there twice"
    np.testing.assert_array_equal(data["next_observation"], np.add(seen, [0, 0, 1]))
    np.testing.assert_array_equal(data["action"], seen[:, 2])


def _nothing_is_held(replay: Replay) -> None:
    replay.reset("t")
    assert replay.statistics().store.pages == 0, "pages are held by a connection that has ended"
