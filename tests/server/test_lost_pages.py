"""Pages of clients whose connections end in the midst of episodes (replay C4, server LP1, LP3)."""

from contextlib import suppress

import numpy as np
import pytest

import headrace as hr
from headrace.server.messages.writing import Refused
from headrace.server.serving.writers.row_writer import ServedRowWriter
from tests.server.remote_writers import RemotelyWritten
from tests.server.test_stopping import until

SIGNATURE = hr.Signature.like({"n": np.int64(0)})


@pytest.mark.parametrize("lanes", [1, 3])
def test_clients_that_die_leave_their_pages_to_later_ones(lanes):
    """The store is twice as large as the table; each client would keep a page of 1/32 until the table is full."""
    fifo = hr.selectors.Fifo()
    table = hr.Table("t", sampler=fifo, remover=fifo, max_size=5000)
    with hr.Replay(SIGNATURE, [table], capacity=10_000) as replay, hr.Server({"r": replay}) as server:
        lives, step = 50, np.zeros(lanes, np.int64) if lanes > 1 else 0
        for life in range(lives):
            with hr.Client(server.address, timeout=20) as client:
                writer = client.replay("r").writer(lanes=lanes, items=[hr.ItemRule("t", 1)])
                for _ in range(10):
                    writer.append({"n": step + life})
                writer.flush(timeout=20)
                client._session._writers.channel.shutdown()
                client._session.abandon()
            until(lambda: not server.statistics().connections)
        found = [int(item["n"][0]) for item in replay.items("t")]
        assert sorted(found) == sorted(life for life in range(lives) for _ in range(10 * lanes))
        assert replay.statistics().store.pages < 10


def test_writers_of_clients_that_are_closed_leave_their_pages(tmp_path):
    """The server takes pages ahead for each; so each kept its last page until the store was full."""
    fifo = hr.selectors.Fifo()
    table = hr.Table("t", sampler=fifo, remover=fifo, max_size=5000)
    with hr.Replay(SIGNATURE, [table], capacity=10_000) as replay, hr.Server({"r": replay}) as server:
        with hr.Client(server.address, timeout=20) as client:
            for life in range(50):
                with client.replay("r").writer(items=[hr.ItemRule("t", 2)]) as writer:
                    for step in range(10):
                        writer.append({"n": 100 * life + step})
                    writer.end_episode()
        until(lambda: not server.statistics().connections)
        windows = [item["n"].reshape(-1).tolist() for item in replay.items("t")]
        assert windows == [[100 * life + n, 100 * life + n + 1] for life in range(50) for n in range(9)]
        assert replay.statistics().store.pages < 10


def test_windows_do_not_go_on_in_the_rows_of_a_later_writer():
    """A view of the next row shows nothing behind the last row of a lost connection."""
    fifo = hr.selectors.Fifo()
    table = hr.Table("t", sampler=fifo, remover=fifo, max_size=5000)
    with RemotelyWritten(SIGNATURE, [table], capacity=10_000) as replay:
        lost = replay.remote.writer(items=[hr.ItemRule("t", 1)], history=1)
        for n in (1, 2, 3):
            lost.append({"n": n})
        lost.flush(30)
        replay.end()
        with replay.local.writer(items=[hr.ItemRule("t", 1)]) as other:
            for n in (11, 12):
                other.append({"n": n})
            views = {"n": hr.View("n"), "next": hr.View("n", shift=1)}
            found = {
                int(item["n"].reshape(-1)[0]): int(item["next"].reshape(-1)[0])
                for item in replay.local.items("t", views=views)
            }
        assert found[1] == 2
        assert found[2] == 3
        assert found[3] not in (11, 12)
        assert found[11] == 12


def test_a_client_that_comes_back_goes_on_in_its_page_of_final_rows():
    """Final rows of lanes that end one by one are in a page of their own, which each connection would begin anew."""
    fifo = hr.selectors.Fifo()
    table = hr.Table("t", sampler=fifo, remover=fifo, max_size=5000)
    with RemotelyWritten(SIGNATURE, [table], capacity=10_000) as replay:
        writer = replay.remote.writer(lanes=3, items=[hr.ItemRule("t", 1)])
        for life in range(40):
            writer.append({"n": np.array([10 * life + 1, -1, -1])})
            writer.end_episode({"n": 10 * life + 2}, lane=0)
            writer.flush(20)
            replay.channel_of_writers().shutdown()
        writer.close(20)
        found = [pair for pair in shown(replay.local, "0:1") if pair[0] > 0]
        assert found == [[10 * life + 1, 10 * life + 2] for life in range(40)]
        assert replay.local.statistics().store.pages < 10


def test_the_final_row_behind_a_lost_connection_has_the_version_of_its_steps():
    """LP3: an end of an episode has no version of its own."""
    fifo = hr.selectors.Fifo()
    table = hr.Table("t", sampler=fifo, remover=fifo, max_size=100)
    with RemotelyWritten(SIGNATURE, [table], capacity=10_000) as replay:
        writer = replay.remote.row_writer(items=[hr.ItemRule("t", 1), hr.ItemRule("t", 2)])
        writer.policy_version = 7
        writer.append({"n": 1})
        writer.flush(20)
        replay.channel_of_writers().shutdown()
        writer.end_episode({"n": 2})
        writer.close(20)
        items = replay.local.items("t", views={"version": hr.View("policy_version")})
        assert [item["version"].reshape(-1).tolist() for item in items] == [[7], [7, 7]]


@pytest.mark.parametrize("lanes", [1, 3])
def test_a_client_comes_back_after_another_writer_has_taken_its_page(lanes, monkeypatch):
    """LP3, B5: its steps go into another page, and no window goes on in the rows of the other writer."""
    fifo = hr.selectors.Fifo()
    table = hr.Table("t", sampler=fifo, remover=fifo, max_size=5000)
    resume, resumed = ServedRowWriter.resume, []
    with RemotelyWritten(SIGNATURE, [table], capacity=10_000) as replay:

        def come_late(writer, left):
            with replay.local.writer(lanes=lanes, items=[hr.ItemRule("t", 1)]) as other:
                for n in (100, 101, 102):
                    other.append({"n": n if lanes == 1 else np.full(lanes, n)})
            resumed.append(resume(writer, left))
            return resumed[-1]

        monkeypatch.setattr(ServedRowWriter, "resume", come_late)
        writer = replay.remote.writer(lanes=lanes, items=[hr.ItemRule("t", 1)])
        for n in range(1, 7):
            writer.append({"n": n if lanes == 1 else np.full(lanes, n)})
            if n == 3:
                writer.flush(20)
                replay.channel_of_writers().shutdown()
        writer.flush(20)
        assert resumed == [False]
        found = shown(replay.local, "-1:1")
        others = [[0, 100, 101], [100, 101, 102], [101, 102, 0]]
        # The row after the cut looks back at rows that were sent again, as far as these are in reach.
        mine = [[0, 1, 2], [1, 2, 3], [2, 3, 0], [3, 4, 5], [4, 5, 6], [5, 6, 0]]
        assert found == sorted((mine + others) * lanes)
        writer.close(20)


def shown(replay, shift):
    """Rows near those of the items; a row that is not known is 0."""
    items = replay.items("t", views={"n": hr.View("n", shift=shift)})
    return sorted(item["n"].reshape(-1).tolist() for item in items)


def test_a_replay_that_is_closed_while_a_client_is_lost_keeps_no_other_page(monkeypatch):
    """LP1, SV4: the writers of the client's other replays give back their pages all the same."""
    fifo = hr.selectors.Fifo()
    closed, other = (
        hr.Replay(SIGNATURE, [hr.Table("t", sampler=fifo, remover=fifo, max_size=9)], capacity=1000)
        for _ in range(2)
    )
    suspend = ServedRowWriter.suspend

    def suspend_late(writer):
        closed.close()
        return suspend(writer)

    with other, hr.Server({"closed": closed, "other": other}) as server:
        with hr.Client(server.address, timeout=20) as client:
            writers = [
                client.replay(name).writer(items=[hr.ItemRule("t", 1)]) for name in ("closed", "other")
            ]
            for writer in writers:
                writer.append({"n": 1})
                writer.flush(timeout=20)
            other.delete("t", [int(item.info.keys[0]) for item in other.items("t")])
            assert other.statistics().store.pages == 2
            monkeypatch.setattr(ServedRowWriter, "suspend", suspend_late)
            client._session._writers.channel.shutdown()
            client._session.abandon()
        until(lambda: not other.statistics().store.pages)


@pytest.mark.parametrize("lanes", [1, 3])
def test_a_client_that_comes_back_in_an_episode_goes_on_in_its_page(lanes):
    """LP3, C4: each of the forty connections of one episode would keep a page of 1/32."""
    fifo = hr.selectors.Fifo()
    table = hr.Table("t", sampler=fifo, remover=fifo, max_size=5000)
    with RemotelyWritten(SIGNATURE, [table], capacity=10_000) as replay:
        writer = replay.remote.writer(lanes=lanes, items=[hr.ItemRule("t", 2)])
        for life in range(40):
            for step in range(5 * life, 5 * life + 5):
                writer.append({"n": step if lanes == 1 else np.full(lanes, step)})
            writer.flush(20)
            replay.channel_of_writers().shutdown()
        writer.end_episode()
        writer.close(20)
        views = {"n": hr.View("n", shift="0:2")}
        items = replay.local.items("t", views=views)
        found = [item["n"].reshape(-1, 3)[0].tolist() for item in items]
        assert sorted(found) == sorted(
            [n, n + 1, n + 2 if n < 198 else 0] for n in range(199) for _ in range(lanes)
        )
        assert replay.local.statistics().store.pages < 10


def test_a_refusal_that_is_lost_is_told_when_the_client_comes_back():
    """AK3: the server would take the operation for one that it has applied, and join two episodes."""
    fifo = hr.selectors.Fifo()
    tables = [hr.Table(name, sampler=fifo, remover=fifo, max_size=5000) for name in ("t", "others")]
    with RemotelyWritten(SIGNATURE, tables, capacity=1000) as replay:
        writer = replay.remote.writer(lanes=3, items=[hr.ItemRule("t", 1), hr.ItemRule("t", 2)])
        writer.append({"n": np.array([1, 2, 3])})
        writer.flush(20)
        with replay.local.writer(items=[hr.ItemRule("others", 1)]) as other, suppress(hr.StoreFull):
            while True:
                other.append({"n": 0})
        client, lost = replay.channel_of_writers(), []

        def is_dropped(message):
            if isinstance(message, Refused):
                client.shutdown()
                lost.append(message)
            return bool(lost)

        replay.channel_of_server().is_dropped = is_dropped
        with pytest.raises(hr.StoreFull):
            writer.end_episode({"n": 9}, lane=0)
        assert lost
        writer.append({"n": np.array([4, 5, 6])})
        writer.close(20)
        found = sorted(item["n"].reshape(-1).tolist() for item in replay.local.items("t"))
        assert found == [[1], [1, 4], [2], [2, 5], [3], [3, 6], [4], [5], [6]]
