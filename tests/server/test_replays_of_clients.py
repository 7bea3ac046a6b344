"""The reading half of the contract of replays over a client, with rows written by the server's own process."""

from typing import ClassVar

import pytest

import headrace as hr
from headrace.replay.interface import ReplayLike
from headrace.testing import ReplayContract
from headrace.testing.replay_contract import assert_has_interface


class Served:
    """A replay of a client, with the writers of the replay itself."""

    def __init__(self, replay, **server):
        self._replay = replay
        self._server = hr.Server({"r": replay}, **server).start()
        self._client = hr.Client(self._server.address, token=server.get("token"))
        self._remote = self._client.replay("r")
        self._is_closed = False

    def __getattr__(self, name):
        return getattr(self._remote, name)

    def writer(self, *args, **kwargs):
        self._remote.check_open()
        return self._replay.writer(*args, **kwargs)

    def row_writer(self, *args, **kwargs):
        self._remote.check_open()
        return self._replay.row_writer(*args, **kwargs)

    def close(self):
        self._remote.close()
        self._client.close()
        self._server.stop()
        self._replay.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class TestOverTcp(ReplayContract):
    settings: ClassVar = {}

    def make(self, signature, tables, seed=0):
        return Served(hr.Replay(signature, tables, seed=seed), **self.settings)

    def test_it_has_the_interface(self):
        with self.new(hr.Table.queue("t", 1)) as replay:
            assert_has_interface(ReplayLike, replay._remote)


class TestWithAToken(TestOverTcp):
    settings: ClassVar = {"token": "secret"}


class TestInPlace(TestOverTcp):
    @pytest.fixture(autouse=True)
    def at_a_path(self, tmp_path):
        self.folder, self.made = tmp_path, 0

    def make(self, signature, tables, seed=0):
        self.made += 1
        path = self.folder / str(self.made)
        return Served(hr.Replay(signature, tables, seed=seed), address=None, unix=path)
