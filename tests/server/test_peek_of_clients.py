"""`peek` of a client: an item of a server without a sample."""

import numpy as np
import pytest

import headrace as hr

SIGNATURE = hr.Signature.like({"camera": np.zeros((40, 40), np.uint8), "n": 0})


@pytest.fixture(params=["tcp", "unix"])
def address(request, tmp_path):
    return {"address": None, "unix": tmp_path / "s"} if request.param == "unix" else {}


@pytest.fixture
def replay():
    tables = [hr.Table.queue("q", 30), hr.Table.queue("empty", 9)]
    with hr.Replay(SIGNATURE, tables, seed=0) as replay:
        with replay.writer(items=[hr.ItemRule("q", 3)]) as writer:
            for n in range(20):
                writer.append({"camera": np.full((40, 40), n, np.uint8), "n": n})
        yield replay


def test_a_random_item_that_is_not_counted(replay, address):
    """CL3: as in process; nothing is removed, counted, or drawn from the replay's generator."""
    before = replay.statistics()
    with hr.Server({"r": replay}, **address) as server, hr.Client(server.address) as client:
        table = client.replay("r").table("q")
        seen = set()
        for _ in range(200):
            item = table.peek()
            assert item["n"].shape == (1, 3)
            assert (item["camera"] == item["n"][..., None, None]).all()
            assert (item.info.times_sampled, item.info.probabilities) == (0, pytest.approx(1 / 18))
            seen.add(int(item["n"][0, 0]))
        assert len(seen) == 18
        assert replay.statistics() == before
        cut = table.peek(max_rows=2)
        assert cut["n"].shape == (1, 2)
        again = [int(table.peek(random=np.random.default_rng(7)).info.keys[0]) for _ in range(3)]
        assert len(set(again)) == 1


def test_refusals(replay, address):
    with hr.Server({"r": replay}, **address) as server, hr.Client(server.address) as client:
        remote = client.replay("r")
        with pytest.raises(hr.ItemNotFound):
            remote.table("empty").peek()
        with pytest.raises(ValueError, match="max_rows"):
            remote.table("q").peek(max_rows=0)
        table = remote.table("q")
        remote.close()
        with pytest.raises(hr.Closed):
            table.peek()


def test_the_live_page_looks_into_a_server_elsewhere(replay):
    from headrace.monitor.looking import look

    with hr.Server({"r": replay}) as server, hr.Client(server.address) as client:
        found = look(client.replay("r"), "q", 0)
    assert (found["rows"], found["origin"]) == (3, None)
