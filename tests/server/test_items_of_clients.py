"""`get` and `items` of a client's replay: one program over a replay and over its server (CL3)."""

import numpy as np
import pytest

import headrace as hr

SIGNATURE = hr.Signature.like({"camera": np.zeros((30, 40), np.uint8), "n": np.int64(0)})
VIEWS = {"now": hr.View("n"), "next": hr.View("n", shift=1)}


@pytest.fixture(params=["tcp", "unix"])
def address(request, tmp_path):
    return {"address": None, "unix": tmp_path / "s"} if request.param == "unix" else {}


@pytest.fixture
def replay():
    uniform, fifo = hr.selectors.Uniform(), hr.selectors.Fifo()
    tables = [hr.Table(name, sampler=uniform, remover=fifo, max_size=30) for name in ("t", "long", "empty")]
    with hr.Replay(SIGNATURE, tables, seed=0) as replay:
        with replay.writer(items=[hr.ItemRule("t", 1, lookahead=1, priority=2.0)], history=5) as writer:
            for n in range(20):
                writer.append({"camera": np.full((30, 40), n, np.uint8), "n": n})
                writer.create_item("long", 1 + n % 3 if n >= 2 else 1, priority=n + 1.0)
        yield replay


@pytest.fixture
def remote(replay, address):
    with hr.Server({"r": replay}, **address) as server, hr.Client(server.address) as client:
        yield client.replay("r")


def assert_same(got, expected):
    assert isinstance(got.data, dict)
    assert list(got.data) == list(expected.data)
    for name in expected.data:
        np.testing.assert_array_equal(got[name], expected[name])
    for name in ("keys", "probabilities", "table_size", "priorities", "times_sampled"):
        np.testing.assert_array_equal(getattr(got.info, name), getattr(expected.info, name))
    np.testing.assert_array_equal(got.mask, expected.mask)


@pytest.mark.parametrize(("table", "views"), [("t", None), ("t", VIEWS), ("long", None), ("empty", None)])
@pytest.mark.parametrize("batch_size", [1, 7, 100])
def test_items_are_those_of_the_replay_and_nothing_is_counted(replay, remote, table, views, batch_size):
    before = replay.statistics()
    expected = list(replay.items(table, batch_size, views=views))
    got = list(remote.items(table, batch_size, views=views))
    assert len(got) == len(expected)
    for one, other in zip(got, expected, strict=True):
        assert_same(one, other)
    if expected:
        keys = expected[0].info.keys[::-1].repeat(2)
        assert_same(remote.get(table, keys, views=views), replay.get(table, keys, views=views))
    assert replay.statistics() == before


def test_items_that_leave_meanwhile_do_not_come(replay, remote):
    items = remote.items("t", 2)
    keys = np.concatenate([batch.info.keys for batch in replay.items("t")])
    assert next(items)["n"].tolist() == [0, 1]
    replay.delete("t", keys[[0, 2, 3, 5]])
    assert [batch["n"].tolist() for batch in items][:2] == [[4], [6, 7]]


def test_steps_of_the_same_client_come_before(replay, remote):
    """A request comes behind the steps that were appended before it."""
    with remote.writer(items=[hr.ItemRule("empty", 1)]) as writer:
        for n in range(5):
            writer.append({"camera": np.zeros((30, 40), np.uint8), "n": n})
        assert [n for batch in remote.items("empty", 2) for n in batch["n"].tolist()] == list(range(5))
    assert replay.statistics().tables["empty"].samples == 0


def test_refusals(replay, remote):
    missing = int(next(replay.items("t")).info.keys[0])
    replay.delete("t", [missing])
    for calls in (replay, remote):
        with pytest.raises(hr.ItemNotFound, match=rf"no items with 1 of 1 keys, such as \[{missing}\]"):
            calls.get("t", [missing])
        with pytest.raises(ValueError, match="keys: expected at least one"):
            calls.get("t", [])
        with pytest.raises(ValueError, match="batch_size"):
            calls.items("t", 0)
        with pytest.raises(KeyError, match="no table 'u'"):
            calls.items("u")
        with pytest.raises(KeyError, match="no table 'u'"):
            calls.get("u", [1])
    items = remote.items("t", 5)
    next(items)
    remote.close()
    for call in (lambda: next(items), lambda: remote.items("t"), lambda: remote.get("t", [missing])):
        with pytest.raises(hr.Closed):
            call()


def test_what_no_message_can_hold_is_refused(replay, address):
    """WI2: before memory is taken for it; the connection goes on."""
    limits = hr.server.Limits(payload_nbytes=4096)
    with hr.Server({"r": replay}, limits=limits, **address) as server, hr.Client(server.address) as client:
        remote = client.replay("r")
        batches = remote.items("t", 10)
        with pytest.raises(ValueError, match="batch_size: expected a batch of at most 4096 bytes"):
            next(batches)
        assert [n for batch in remote.items("t", 3) for n in batch["n"].tolist()] == list(range(19))
        small = hr.server.Limits(payload_nbytes=100)
    with hr.Server({"r": replay}, limits=small, **address) as server, hr.Client(server.address) as client:
        with pytest.raises(ValueError, match="items: the .* keys of 't' have"):
            client.replay("r").items("t", 1)
