"""The contract of grantors, over ours: in the thread that listens to all peers."""

import threading

from headrace.errors import Disconnected
from headrace.leases.channel import Channel
from headrace.leases.connection import LeaseConnection
from headrace.leases.destination import ReplayItems
from headrace.leases.grantor import LeaseGrantor
from headrace.leases.messages import LeaseMessage
from headrace.leases.selector import PEERS
from headrace.replay.public import core_of
from headrace.testing import LeaseContract
from headrace.testing.lease_contract import Granted


class Served(Granted):
    """A connection whose grantors write into a replay of this process."""

    def __init__(self, replay, lanes, rules):
        self.peer_channel, self.channel = Channel.pair(LeaseMessage)
        self.ended, self.error = threading.Event(), None
        self.owner = _Owner(self, core_of(replay), lanes, rules)

    def pin(self, pages):
        self.owner.connection.pin(pages)


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
