"""server AK2, AK3, AK4, AK6, CL5: a server with a replay on disk is killed, and another takes its place."""

import time

import pytest

import headrace as hr
from tests.server.killed_servers import KilledServer


def numbers(replay, table):
    count = len(replay.table(table))
    return replay.sample(table, count).data["n"].reshape(count, -1).tolist() if count else []


@pytest.fixture
def server(tmp_path):
    with KilledServer(tmp_path) as made:
        yield made


def test_each_item_is_there_once_after_kills(server):
    with hr.Client(server.address, timeout=30) as client:
        replay = client.replay("r")
        rules = [hr.ItemRule("t", 3, stride=2), hr.ItemRule("u", 1)]
        with replay.writer(items=rules, history=5) as writer:
            for n in range(1000):
                writer.append({"n": n})
                if n in (100, 300, 301, 700):
                    # Some of the steps before are applied, some are on their way.
                    server.kill()
                    server.start()
            writer.flush(30)
            assert numbers(replay, "u") == [[n] for n in range(1000)]
            assert numbers(replay, "t") == [[n, n + 1, n + 2] for n in range(0, 998, 2)]


def test_items_that_wait_go_in_once_after_a_kill(tmp_path):
    with KilledServer(tmp_path, bound=5) as server, hr.Client(server.address, timeout=30) as client:
        replay = client.replay("r")
        writer = replay.writer(items=[hr.ItemRule("u", 1)], max_pending=1000)
        for n in range(20):
            writer.append({"n": n})
        with pytest.raises(hr.DeadlineExceeded) as caught:
            writer.flush(0)
        assert caught.value.pending == 15
        assert numbers(replay, "u") == [[n] for n in range(5)]
        server.kill()
        server.start()
        replay.statistics()  # Connects again, which a sample does not.
        seen = []
        while len(seen) < 15:
            seen += replay.sample("u", 1, timeout=20).data["n"].tolist()
        assert seen == list(range(5, 20))
        writer.close(20)


def test_steps_without_a_server_are_kept_and_sent_when_it_is_back(server):
    """AK3, AK6: the time of a call runs out, its items stay with the writer, and a later flush brings them."""
    with hr.Client(server.address, timeout=20) as client:
        replay = client.replay("r")
        writer = replay.writer(items=[hr.ItemRule("u", 1)])
        server.kill()
        for n in range(3):
            writer.append({"n": n})
        began = time.monotonic()
        with pytest.raises(hr.Disconnected, match="not reached") as caught:
            writer.flush(0.1)
        assert time.monotonic() - began < 15  # The client's timeout is 20 s.
        assert caught.value.pending >= 3
        server.start()
        for n in range(3, 5):
            writer.append({"n": n})
        writer.close(20)
        assert numbers(replay, "u") == [[n] for n in range(5)]
