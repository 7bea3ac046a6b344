"""The contracts of replays and their writers, over a client."""

from typing import ClassVar

import pytest

import headrace as hr
from headrace.replay.interface import ReplayLike
from headrace.server.compression import packing, zstd
from headrace.testing import ReplayContract, WriterContract
from headrace.testing.replay_contract import assert_has_interface
from tests.server.certificates import client_context, server_context


class Served:
    """A replay of a client, with its server."""

    def __init__(self, replay, compression=None, **server):
        self._replay = replay
        self._server = hr.Server({"r": replay}, **server).start()
        tls = client_context() if "tls" in server else None
        self._client = hr.Client(
            self._server.address, token=server.get("token"), tls=tls, compression=compression
        )
        self.remote = self._client.replay("r")

    def __getattr__(self, name):
        return getattr(self.remote, name)

    def close(self):
        self.remote.close()
        self._client.close()
        self._server.stop()
        self._replay.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Settings:
    """The settings of servers."""

    settings: ClassVar = {}

    @pytest.fixture(autouse=True)
    def at_a_path(self, tmp_path):
        self.folder, self.made = tmp_path, 0

    def serve(self, replay):
        self.made += 1
        settings = dict(self.settings)
        if "unix" in settings:
            settings["unix"] = self.folder / str(self.made)
        return Served(replay, **settings)


class TestOverTcp(Settings, ReplayContract):
    def make(self, signature, tables, seed=0):
        return self.serve(hr.Replay(signature, tables, seed=seed))

    def test_it_has_the_interface(self):
        with self.new(hr.Table.queue("t", 1)) as replay:
            assert_has_interface(ReplayLike, replay.remote)


class TestOverTls(TestOverTcp):
    settings: ClassVar = {"tls": server_context(), "token": "secret"}


class Compressed:
    """Every column that shrinks is compressed, however small it is."""

    settings: ClassVar = {"compression": "zstd"}

    @pytest.fixture(autouse=True)
    def small_columns(self, monkeypatch):
        if not zstd.is_installed():
            pytest.skip("needs headrace[zstd]")
        monkeypatch.setattr(packing, "_LEAST_NBYTES", 1)


class TestCompressed(Compressed, TestOverTcp):
    """LP4"""


class TestInPlace(TestOverTcp):
    settings: ClassVar = {"address": None, "unix": None}


class TestWritersOverTcp(Settings, WriterContract):
    def make(self, signature, tables, capacity=None):
        return self.serve(hr.Replay(signature, tables, capacity=capacity))


class TestWritersOverTls(TestWritersOverTcp):
    settings: ClassVar = {"tls": server_context(), "token": "secret"}


class TestCompressedWriters(Compressed, TestWritersOverTcp):
    """LP4"""


class TestWritersOverUnix(TestWritersOverTcp):
    settings: ClassVar = {"address": None, "unix": None}
