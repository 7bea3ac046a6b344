"""Replays of this process as shards that can be lost."""

import pytest

import headrace as hr
from headrace.errors import Disconnected
from headrace.replay.shards.replay import ShardedReplay


class Lost:
    """A replay that can be cut off: then every call raises `Disconnected`, as of a client whose server is gone."""

    def __init__(self, replay):
        self.replay = replay
        self.is_lost = False

    def open(self):
        if self.is_lost:
            raise Disconnected("nobody listens there")
        return Reached(self)


class Reached:
    """A connection to a `Lost`, and to its writers; it ends for good when that is lost."""

    def __init__(self, lost, inner=None):
        self._lost, self._has_ended = lost, False
        self._inner = lost.replay if inner is None else inner

    def __getattr__(self, name):
        found = getattr(self._inner, name)
        if not callable(found):
            self._check()
            return found

        def call(*args, **kwargs):
            self._check()
            result = found(*args, **kwargs)
            if name == "items":
                return self._items(result)
            return Reached(self._lost, result) if name in ("row_writer", "table") else result

        return call

    def _items(self, items):
        for item in items:
            self._check()
            yield item

    def _check(self):
        self._has_ended |= self._lost.is_lost
        if self._has_ended:
            raise Disconnected("the connection has ended", pending=3)

    def __setattr__(self, name, value):
        if name.startswith("_"):
            super().__setattr__(name, value)
        else:
            setattr(self._inner, name, value)


@pytest.fixture
def make_shards():
    """Returns a function that makes shards of the same tables, and the whole of them."""
    made = []

    def make(tables, num_shards, example=None, seed=0, capacity=None, **settings):
        signature = example if isinstance(example, hr.Signature) else hr.Signature.like(example or {"n": 0})
        shards = [
            Lost(hr.Replay(signature, tables, seed=seed + number, capacity=capacity))
            for number in range(num_shards)
        ]
        whole = ShardedReplay([shard.open for shard in shards], seed=seed, **settings)
        made.append((whole, shards))
        return whole, shards

    yield make
    for whole, shards in made:
        whole.close()
        for shard in shards:
            shard.replay.close()
