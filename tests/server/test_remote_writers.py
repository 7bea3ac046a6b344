"""The contracts of writers and tables, over writers of a client."""

from __future__ import annotations

import pytest

from headrace.testing import ReplayContract, WriterContract
from tests.server.remote_writers import RemotelyWritten


@pytest.fixture(autouse=True)
def replays():
    """Ends the connections of the replays that a test has made."""
    made = []
    yield made
    for replay in made:
        replay.close()
        replay.disconnect()


class TestWriters(WriterContract):
    @pytest.fixture(autouse=True)
    def keep(self, replays):
        self.made = replays

    def make(self, signature, tables, capacity=None):
        self.made.append(RemotelyWritten(signature, tables, capacity=capacity))
        return self.made[-1]


class TestTables(ReplayContract):
    @pytest.fixture(autouse=True)
    def keep(self, replays):
        self.made = replays

    def make(self, signature, tables, seed=0):
        self.made.append(RemotelyWritten(signature, tables, seed=seed))
        return self.made[-1]
