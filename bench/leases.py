"""Commits of leased pages through the whole protocol: message, checks, rows, items, acknowledgement, next lease.

The peers are simulated in this process: they write no columns, so the grantor's side is what takes the time. Each
commit is of 64 steps of 8 lanes.
"""

from __future__ import annotations

import select
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

import headrace as hr
from bench.case import Case, contest_case
from bench.measure import Contest, Goal, Plan, Run
from bench.steps import small_signature, table
from headrace.leases.channel import Channel
from headrace.leases.connection import LeaseConnection
from headrace.leases.destination import ReplayItems
from headrace.leases.frames import Frame
from headrace.leases.grantor import LeaseGrantor
from headrace.leases.messages import POLICY_VERSIONS, Ack, Commit, Lease, LeaseMessage, Message, packed
from headrace.leases.selector import PEERS
from headrace.replay.public import core_of

_LANES = 8
_STEPS = 64
_WRITERS = 100
_ROWS = _LANES * _STEPS
_VERSIONS = packed(np.ones(_STEPS), POLICY_VERSIONS)


def cases() -> list[Case]:
    return [
        contest_case("leases/commit", _commit, Goal(least=3e6)),
        contest_case("leases/100 writers", _many, Goal(ratio=1 / 1.2)),
    ]


@contextmanager
def _commit(_: Plan) -> Iterator[Contest]:
    with _served(1) as (replay, run):
        run(200)
        yield Contest(
            ours=run,
            verify=lambda _: _check(replay),
            per_call=_ROWS,
            unit="steps/s",
        )


@contextmanager
def _many(_plan: Plan) -> Iterator[Contest]:
    before = set(threading.enumerate())
    with _served(_WRITERS) as (replay, many), _served(1) as (_, one):
        many(4 * _WRITERS)
        one(200)
        yield Contest(
            ours=many,
            limit=one,
            limit_name="one writer",
            verify=lambda _: _check_many(replay, before),
            per_call=_ROWS,
            unit="steps/s",
        )


def _check_many(replay: hr.Replay, before: set[threading.Thread]) -> None:
    _check(replay)
    begun = set(threading.enumerate()) - before
    if len(begun) > 1:  # The one that listens; none where it listened before.
        raise AssertionError(f"expected one thread for {_WRITERS} writers, got {begun}")


@contextmanager
def _served(writers: int) -> Iterator[tuple[hr.Replay, Run]]:
    """A replay with so many leased writers; the run commits pages of each in turn, and waits for all of them."""
    with hr.Replay(small_signature(), [table(8 * _ROWS * writers)], seed=0) as replay:
        with ExitStack() as stack:
            peers = [_Peer(replay) for _ in range(writers)]
            for peer in peers:
                stack.callback(peer.close)
            yield replay, _run(peers)


def _run(peers: list[_Peer]) -> Run:
    poll = select.epoll()
    by_descriptor = {peer.far.fileno(): peer for peer in peers}
    for descriptor in by_descriptor:
        poll.register(descriptor, select.EPOLLIN)

    def run(count: int) -> None:
        begun = done = 0
        while done < count:
            for peer in peers:
                if begun < count and peer.is_ready:
                    peer.commit()
                    begun += 1
            for descriptor, _ in poll.poll():
                done += by_descriptor[descriptor].receive()

    return run


class _Peer:
    """Both ends of a connection: a grantor for one writer, and what sends its commits."""

    def __init__(self, replay: hr.Replay) -> None:
        core = core_of(replay)
        self.channel, self.far = Channel.pair(LeaseMessage)
        self.pages: deque[int] = deque()
        self._commits_in_page = core.store.arrays.page_rows // _ROWS
        self._commits = self._sequence = self._acked = 0
        self._connection = LeaseConnection(core.store, self._send)
        grantor = LeaseGrantor(ReplayItems(core, [hr.ItemRule("t", 1)]), _LANES, self._send)
        self._connection.grantors[0] = grantor
        grantor.open(["observation"])
        PEERS.add(self)
        grantor.lease_owed()
        while len(self.pages) < 2:
            select.select([self.far], [], [])
            self.receive()

    def _send(self, *messages: Message) -> None:
        PEERS.send(self, *messages)

    @property
    def is_ready(self) -> bool:
        """Whether it has a page, and at most one commit under way."""
        return bool(self.pages) and self._sequence - self._acked < 2

    def commit(self) -> None:
        """Report the next steps."""
        self._sequence += 1
        page = self.pages[0]
        self._commits += 1
        if self._commits == self._commits_in_page:
            self._commits = 0
            self.pages.popleft()
        self.far.send(
            Commit(
                writer=0,
                sequence=self._sequence,
                page=page,
                steps=_STEPS,
                versions=_VERSIONS,
            )
        )

    def receive(self) -> int:
        """Take in what has come; returns how many commits were acknowledged."""
        before = self._acked
        for frame in self.far.receive_ready():
            if isinstance(frame.message, Lease) and frame.message.purpose == "rows":
                self.pages.append(frame.message.page)
            elif isinstance(frame.message, Ack):
                self._acked = frame.message.sequence
        return self._acked - before

    def take(self, frame: Frame) -> None:
        self._connection.take(frame)

    @property
    def waits(self) -> bool:
        return self._connection.owes_pages

    @property
    def is_full(self) -> bool:
        return False

    def look(self) -> None:
        self._connection.lease_owed()

    def end(self, _: BaseException) -> None:
        # The other end is told, and raises Disconnected.
        self._connection.close()
        self.channel.close()

    def close(self) -> None:
        PEERS.remove(self)
        self._connection.close()
        self.channel.close()
        self.far.close()


def _check(replay: Any) -> None:
    """Every step that was committed became an item."""
    inserts = replay.table("t").statistics().inserts
    if not inserts or inserts % _ROWS:
        raise AssertionError(f"{inserts} items of commits of {_ROWS} steps")
