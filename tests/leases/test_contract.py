"""The contract of grantors, over ours: in the thread that listens to all peers."""

import os
import random
import socket
import threading
from contextlib import suppress

import numpy as np
import pytest

import headrace as hr
from headrace.errors import Disconnected
from headrace.leases.channel import Channel
from headrace.leases.connection import LeaseConnection
from headrace.leases.destination import ReplayItems
from headrace.leases.frames import encoded
from headrace.leases.grantor import LeaseGrantor
from headrace.leases.messages import LeaseMessage, Unpin
from headrace.leases.selector import PEERS
from headrace.replay.public import core_of
from headrace.testing import LeaseContract
from headrace.testing.lease_contract import Granted, LeaseWriter, UnevenWriter


class Served(Granted):
    """A connection whose grantors write into a replay of this process."""

    def __init__(self, replay, lanes, rules):
        self.peer_channel, self.channel = Channel.pair(LeaseMessage)
        self.ended, self.error = threading.Event(), None
        self.owner = _Owner(self, core_of(replay), lanes, rules)

    def pin(self, pages):
        self.owner.connection.pin(pages)

    def leave(self):
        self.channel.close()
        assert self.ended.wait(20)


class _Owner:
    """See `headrace.leases.selector.Peer`."""

    def __init__(self, served, core, lanes, rules):
        self._served = served
        self.channel = served.peer_channel
        self.connection = LeaseConnection(core.store, self._send)
        for number, count in enumerate(lanes):
            grantor = LeaseGrantor(
                ReplayItems(core, rules), count, self._send, writer=number, may_wait=core.items_may_leave
            )
            self.connection.grantors[number] = grantor
            grantor.open(["observation"])
            grantor.lease_owed()
        PEERS.add(self)

    def _send(self, *messages):
        PEERS.send(self, *messages)

    def take(self, frame):
        self.connection.take(frame)

    @property
    def waits(self):
        return self.connection.owes_pages

    is_full = is_at_work = False

    def look(self):
        self.connection.lease_owed()

    def end(self, error):
        if not (isinstance(error, Disconnected) and "has ended" in str(error)):
            self._served.error = error
        self.connection.close()
        self.channel.close()
        self._served.ended.set()


class TestOurs(LeaseContract):
    def connect(self, replay, lanes, rules):
        return Served(replay, lanes, rules)


def vanish(replay, served, lanes, rng):
    """A peer that sends nothing."""


def write(replay, served, lanes, rng):
    """A peer whose lanes take steps together; some of the last are not reported."""
    writer = LeaseWriter(replay, served, lanes)
    writer.run(rng.randint(1, 12))
    writer.step()


def write_unevenly(replay, served, lanes, rng):
    """A peer whose lanes take steps by themselves, and which vanishes in the middle of episodes."""
    writer = UnevenWriter(replay, served, lanes)
    for _ in range(rng.randint(1, 12)):
        taken = sorted(rng.sample(range(lanes), rng.randint(1, lanes)))
        writer.step(taken, [lane for lane in taken if rng.random() < 0.2])
        if rng.random() < 0.5:
            writer.commit()


def lie(replay, served, lanes, rng):
    """A peer that reports steps of lanes which it has not written, at rows that are far away."""
    writer = UnevenWriter(replay, served, lanes)
    writer.step(range(lanes), [0])
    for commit in writer.writer.flush():
        wrong = np.array([rng.choice([-1, 0, 1, 2**40, 2**63 - 1]) for _ in range(rng.randint(1, 3))])
        field = rng.choice(["final", "idle", "ended", "cut", "final_rows", "versions"])
        setattr(commit, field, wrong.tobytes())
        commit.steps += rng.choice([-1, 0, 1, 2**62])
        served.channel.send(commit, payload=bytes(rng.choice([0, 1, 100])))


def send_garbage(replay, served, lanes, rng):
    """A peer that does not speak the protocol."""
    served.channel._socket.sendall(rng.randbytes(rng.randint(1, 100)))


def send_half_a_frame(replay, served, lanes, rng):
    """A peer that ends in the middle of a message."""
    data = encoded(Unpin(pages=[1, 2, 3]))
    served.channel.send(Unpin(pages=[]))
    served.channel._socket.sendall(data[: rng.randrange(len(data))])


def send_descriptors(replay, served, lanes, rng):
    """A peer that sends open files, which no message of a writer has."""
    served.channel.send(Unpin(pages=[]), descriptors=(0, 1))
    socket.send_fds(served.channel._socket, [encoded(Unpin(pages=[]))], [0, 1, 2])


def open_files():
    """The open files of this process, by descriptor and what it is of."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # That of the listing itself is closed again.
            found.add((number, os.readlink(f"/proc/self/fd/{number}")))
    return found


HABITS = (vanish, write, write_unevenly, lie, send_garbage, send_half_a_frame, send_descriptors)


@pytest.mark.parametrize("seed", range(3))
def test_a_hundred_peers_of_all_habits_leave_nothing_behind(seed):
    """Neither pages nor files; and an honest peer among them is served to the end."""
    rng = random.Random(seed)
    signature = hr.Signature.like({"observation": np.zeros(3, np.int64), "action": np.int64(0)})
    table = hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=50)
    rules = [hr.ItemRule("t", 1, lookahead=1)]
    with hr.Replay(signature, [table]) as replay:
        honest = Served(replay, [2], rules)
        writer = LeaseWriter(replay, honest, 2)
        writer.run(5)
        before = open_files()
        peers = []
        for _ in range(100):
            lanes = rng.randint(1, 3)
            peers.append(Served(replay, [lanes], rules))
            with suppress(Disconnected, OSError):  # It was refused already.
                rng.choice(HABITS)(replay, peers[-1], lanes, rng)
            if rng.random() < 0.3:
                peers.pop(rng.randrange(len(peers))).leave()
        for peer in peers:
            peer.leave()
        # Fewer, if garbage or a thread of an earlier test still had some.
        assert open_files() <= before
        writer.run(100)
        honest.leave()
        replay.reset("t")
        assert replay.statistics().store.pages == 0
