"""server AK3, replay K1: keys of items that clients create are those that the server gave out, each once."""

import time
from contextlib import suppress

import numpy as np
import pytest

import headrace as hr
from headrace.leases.frames import encoded
from headrace.server.messages.operations import AppendSteps, CreateItem
from headrace.server.messages.writing import OpenWriter, WantKeys
from tests.server.hostile import SESSION, said_to

SIGNATURE = hr.Signature.like({"n": np.int64(0)})


def new_replay(*, size=99, path=None):
    table = hr.Table("t", sampler=hr.selectors.Fifo(), remover=hr.selectors.Fifo(), max_size=size)
    return hr.Replay(SIGNATURE, [table, hr.Table.queue("q", 1)], capacity=1000, path=path)


def created(keys, table="t"):
    """Returns what a client says that creates items of its first row with these keys."""
    opening = OpenWriter(writer=0, replay="r", lanes=1, rules=[], history=4, session=b"x" * 16)
    said = encoded(opening) + encoded(WantKeys(writer=0))
    said += encoded(AppendSteps(writer=0, sequence=1, steps=1, version=0), bytes(8))
    for number, key in enumerate(keys):
        operation = CreateItem(
            writer=0, sequence=2 + number, table=table, length=1, priority=1.0, lane=0, key=key
        )
        said += encoded(operation)
    return SESSION + said


def until(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


@pytest.fixture(params=["memory", "disk"])
def replay(request, tmp_path):
    with new_replay(path=tmp_path / "store" if request.param == "disk" else None) as replay:
        yield replay


@pytest.mark.parametrize("key", [0, -1, 10**6, 2**63 - 1])
def test_a_key_that_was_not_given_out_is_refused(replay, key):
    """Keys of later items were not found beside it, and no priority of theirs was updated."""
    with hr.Server({"r": replay}) as server:
        assert b"expected one that the server gave out" in said_to(server, created([key]))
        with (
            hr.Client(server.address) as client,
            client.replay("r").writer(items=[hr.ItemRule("t", 1)]) as writer,
        ):
            for n in range(4):
                writer.append({"n": n})
            writer.flush(10)
            keys = [key for batch in client.replay("r").items("t", 9) for key in batch.info.keys]
            assert client.replay("r").update_priorities("t", keys, np.ones(4)) == 4
            assert client.replay("r").delete("t", keys) == 4


@pytest.mark.parametrize("table", ["t", "q"])
def test_a_key_that_comes_twice_is_refused(replay, table):
    """Also of an item that waits: it would have held up the items of all others, for ever. Its page is released."""
    with hr.Server({"r": replay}) as server:
        said = said_to(server, created([1, 2, 2, 2], table))
        assert said.count(b"expected keys of no item") == 2
        with hr.Client(server.address) as client, client.replay("r").writer() as writer:
            writer.append({"n": 7})
            writer.create_item(table, 1)
            found = [
                replay.sample(table, 1, timeout=10)["n"].tolist() for _ in range(3 if table == "q" else 1)
            ]
            assert found[-1] == ([7] if table == "q" else [0])
        replay.reset(table)
        until(lambda: replay.statistics().store.rows == 0)


def test_items_that_a_replaced_server_did_not_take_get_keys_of_the_new_one(tmp_path):
    """Both servers count keys from 1, so the new one may have given the keys of the old one to other items."""
    address = tmp_path / "server.sock"
    old, new = new_replay(), new_replay()
    with old, new:
        first = hr.Server({"r": old}, unix=address, address=None).start()
        with hr.Client(first.address) as client, client.replay("r").writer() as writer:
            writer.append({"n": 1})
            writer.create_item("t", 1)
            writer.flush(10)
            first.stop()
            # Not sent yet: there is no server.
            writer.append({"n": 2})
            for _ in range(3):
                writer.create_item("t", 1)
            with hr.Server({"r": new}, unix=address, address=None):
                with suppress(hr.Closed):  # The goodbye of the old server may end the first call.
                    writer.flush(20)
                writer.flush(20)
                late = [writer.create_item("t", 1) for _ in range(3)]
                writer.flush(20)
                keys = [key for batch in new.items("t", 99) for key in batch.info.keys.tolist()]
                assert len({*keys}) == len(keys) == 6
                assert keys[3:] == late
                writer.close()  # Later the goodbye of the new server may come while it waits.
