"""server AK7, CL6, CL9, LP1: writers of clients whose server goes away, and clients that are closed."""

import os
import threading
import time

import numpy as np
import pytest

import headrace as hr
from headrace.server.client.writers.pending_items import PendingItems
from headrace.server.messages.writing import WantKeys
from headrace.tables.description.rules import PatternWindow, WholeEpisodes
from headrace.testing import FakeClock

SIGNATURE = hr.Signature.like({"n": 0})
RULES = [hr.ItemRule("q", 1)]


def tables(bound=None):
    fifo = hr.selectors.Fifo()
    limiter = hr.rate_limiters.Queue(bound) if bound else hr.rate_limiters.MinSize(1)
    settings = {"max_size": 1000, "rate_limiter": limiter, "max_times_sampled": 1}
    return [hr.Table("q", sampler=fifo, remover=fifo, **settings)]


def until(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.002)


def served(replay, path):
    return hr.Server({"r": replay}, address=None, unix=path)


def numbers(replay):
    return replay.sample("q", len(replay.table("q"))).data["n"].tolist()


def test_an_error_in_a_with_block_of_a_writer_is_raised_although_the_server_is_gone(tmp_path):
    """`abandon` does not wait, and a server that cannot be asked does not hide the caller's error."""
    with hr.Replay(SIGNATURE, tables(bound=2)) as replay:
        server = served(replay, tmp_path / "s").start()
        client = hr.Client(server.address, timeout=20)
        writer = client.replay("r").writer(items=RULES)

        def write():
            with writer:
                for n in range(5):
                    writer.append({"n": n})
                assert writer.pending == 3
                server.stop()
                until(lambda: not writer._rows._stream.is_connected)
                for n in range(5, 7):
                    writer.append({"n": n})
                raise RuntimeError("mine")

        began = time.monotonic()
        with pytest.warns(ResourceWarning, match="left with 5 items pending"):
            with pytest.raises(RuntimeError, match="^mine$"):
                write()
        assert time.monotonic() - began < 10
        client._session.abandon()


@pytest.mark.parametrize("is_unix", [True, False])
def test_writers_go_on_in_the_checkpoint_of_a_server_that_was_stopped(tmp_path, is_unix):
    """SV6, AK3: a replay in memory that is saved by `stop` and loaded again has each item once."""
    place = {"address": None, "unix": tmp_path / "s"} if is_unix else {}
    saved = tmp_path / "saved"
    with hr.Replay(SIGNATURE, tables()) as replay:
        server = hr.Server({"r": replay}, checkpoint=saved, **place).start()
        again = {"address": server.address, **place}
        client = hr.Client(server.address, timeout=20)
        writer = client.replay("r").writer(items=[hr.ItemRule("q", 3)])
        for n in range(5):
            writer.append({"n": n})
        writer.flush(20)
        for n in range(5, 8):
            writer.append({"n": n})
        server.stop()
        until(lambda: not writer._rows._stream.is_connected)  # Or the goodbye ends its `close`.
    for n in range(8, 10):
        writer.append({"n": n})
    with hr.Replay.load(saved / "r") as loaded, hr.Server({"r": loaded}, **again):
        writer.close(20)
        client.close()
        assert numbers(loaded) == [[n, n + 1, n + 2] for n in range(8)]


def test_a_writer_whose_replay_was_closed_never_goes_on_in_another(tmp_path):
    """CL3: as in process. The refused steps are lost, so no later step may continue those before them."""

    def write(writer, steps):
        for n in steps:
            writer.append({"n": n})
        writer.flush(20)

    rules, path = [hr.ItemRule("q", 2)], tmp_path / "s"
    with hr.Replay(SIGNATURE, tables()) as replay, served(replay, path) as server:
        client = hr.Client(server.address, timeout=20)
        writer = client.replay("r").writer(items=rules)
        write(writer, range(3))
        replay.close()
        with pytest.raises(
            hr.Closed, match="the replay is closed; . items of this writer are not acknowledged"
        ):
            write(writer, range(3, 8))
    with hr.Replay(SIGNATURE, tables()) as other, served(other, path):
        for n in range(8, 10):
            with pytest.raises(hr.Closed, match="the replay is closed"):
                write(writer, [n])
        with client.replay("r").writer(items=rules) as second:
            write(second, range(10, 12))
        assert numbers(other) == [[10, 11]]
        client._session.abandon()


@pytest.mark.parametrize("is_unix", [True, False])
def test_a_server_that_is_stopped_ends_calls_of_writers_and_the_next_one_gets_the_rest(tmp_path, is_unix):
    """AK7, AK3: the error has the number of items. Items that wait in the replay are not made again."""
    with hr.Replay(SIGNATURE, tables(bound=2)) as replay:
        place = {"address": None, "unix": tmp_path / "s"} if is_unix else {}
        server = hr.Server({"r": replay}, **place).start()
        again = {"address": server.address, **place}
        client = hr.Client(server.address, timeout=20)
        writer = client.replay("r").writer(items=RULES)
        for n in range(5):
            writer.append({"n": n})
        assert writer.pending == 3
        failures = []

        def flush():
            try:
                writer.flush(20)
            except hr.Closed as error:
                failures.append(error)

        thread = threading.Thread(target=flush)
        thread.start()
        until(lambda: writer._rows._stream._requests)
        server.stop()
        thread.join(5)
        assert "3 items" in str(failures[0])
        with pytest.raises(hr.Disconnected) as caught:
            writer.flush(0.05)
        assert caught.value.pending == 3
        writer.append({"n": 5})
        # Items that were not acknowledged are queued in the replay, which goes on.
        assert [replay.sample("q", 1, timeout=5).data["n"].tolist() for _ in range(2)] == [[0], [1]]
        with hr.Server({"r": replay}, **again):
            found = [replay.sample("q", 1, timeout=20).data["n"].tolist() for _ in range(4)]
            assert found == [[n] for n in range(2, 6)]
            writer.close(20)
            assert len(replay.table("q")) == 0
            client.close()


def test_a_writer_whose_items_are_all_acknowledged_closes_after_its_server(tmp_path):
    """AK1, AK7: nothing is owed, so that nothing is waited for."""
    with hr.Replay(SIGNATURE, tables()) as replay:
        server = served(replay, tmp_path / "s").start()
        client = hr.Client(server.address, timeout=20)
        writer = client.replay("r").writer(items=RULES)
        writer.append({"n": 7})
        writer.flush(20)
        server.stop()
        until(lambda: not writer._rows._stream.is_connected)
        writer.close()
        client.close()
        assert numbers(replay) == [7]


def test_a_client_that_broke_the_protocol_is_not_connected_again(tmp_path):
    """WI3: its writer would do the same again."""
    with hr.Replay(SIGNATURE, tables()) as replay, served(replay, tmp_path / "s") as server:
        with hr.Client(server.address, timeout=5) as client:
            writer = client.replay("r").writer(items=RULES)
            client._session._writers.send(WantKeys(writer=99))
            until(lambda: writer._rows._stream.has_ended)
            with pytest.raises(hr.Closed, match="open writer"):
                writer.append({"n": 0})


def test_closing_a_client_waits_for_the_items_of_its_writers(tmp_path):
    """CL6"""
    with hr.Replay(SIGNATURE, tables(bound=2)) as replay, served(replay, tmp_path / "s") as server:
        client = hr.Client(server.address)
        writers = [client.replay("r").writer(items=RULES) for _ in range(2)]
        for writer in writers:
            for n in range(3):
                writer.append({"n": n})
        assert sum(writer.pending for writer in writers) == 4  # So the server has all of them.
        client._session.writers().timeout = 0.5  # Of waits; a handshake may take longer.
        with pytest.raises(hr.DeadlineExceeded) as caught:
            client.close()
        assert caught.value.pending == 4
        client.close()
        for writer in writers:
            with pytest.raises(hr.Closed):
                writer.append({"n": 9})
        replay.reset("q")

        with hr.Client(server.address, timeout=20) as client:
            writer = client.replay("r").writer(items=RULES)
            replay.table("q").configure(rate_limiter=hr.rate_limiters.MinSize(1))
            for n in range(100):
                writer.append({"n": n})
        assert len(replay.table("q")) >= 100

        def fail():
            with hr.Client(server.address, timeout=20) as client:
                replay.table("q").configure(rate_limiter=hr.rate_limiters.Queue(1))
                writer = client.replay("r").writer(items=RULES)
                writer.append({"n": 0})
                writer.append({"n": 1})
                raise ZeroDivisionError  # Nothing is waited for.

        with pytest.warns(ResourceWarning, match="2 items and 0 samples"), pytest.raises(ZeroDivisionError):
            fail()


def test_a_forked_child_has_no_use_of_the_writers(tmp_path):
    """CL9"""
    with hr.Replay(SIGNATURE, tables()) as replay, served(replay, tmp_path / "s") as server:
        with hr.Client(server.address, timeout=20) as client:
            writer = client.replay("r").writer(items=RULES)
            writer.append({"n": 0})
            reading, writing = os.pipe()
            child = os.fork()
            if not child:
                try:
                    writer.append({"n": 100})
                    os.write(writing, b"appended")
                except hr.Closed as error:
                    os.write(writing, str(error).encode())
                finally:
                    os._exit(0)
            os.waitpid(child, 0)
            os.close(writing)
            with os.fdopen(reading, "rb") as pipe:
                assert b"forked" in pipe.read()
            writer.append({"n": 1})
            writer.close(20)
            assert numbers(replay) == [0, 1]


def test_a_writer_that_is_forgotten_gives_back_its_pages(tmp_path):
    """LP1: also where its items wait: they stay, with a warning."""
    with hr.Replay(SIGNATURE, tables(bound=1)) as replay, served(replay, tmp_path / "s") as server:
        with hr.Client(server.address, timeout=20) as client:
            remote = client.replay("r")
            writer = remote.writer(items=RULES)
            writer.append({"n": 0})
            writer.append({"n": 1})
            assert writer.pending == 1
            with pytest.warns(ResourceWarning, match="1 items"):
                del writer
            assert [remote.sample("q", 1, timeout=5).data["n"].tolist() for _ in range(2)] == [[0], [1]]
            until(lambda: not client._session._writers.streams())
            with remote.writer(items=RULES) as writer:
                writer.append({"n": np.int64(2)})


@pytest.mark.parametrize(("timeout", "left"), [(5.0, 3.0), (1.0, 0.0), (None, None)])
def test_a_wait_for_items_has_its_timeout_once(timeout, left):
    """CL5: the time for steps on their way is part of it."""
    clock = FakeClock()

    class Stream:
        is_connected = True

        def drain(self, seconds):
            assert seconds == timeout
            clock.advance(2.0)

        def ask(self, request, seconds, *_, **fields):
            self.asked = seconds

    stream = Stream()
    PendingItems(stream, clock).wait(0, timeout)
    assert stream.asked == left


def test_at_the_bound_a_writer_waits_for_a_lost_server_by_its_own_timeout(monkeypatch):
    """AK3: not by the client's, which is longer."""
    fifo = hr.selectors.Fifo()
    table = hr.Table(
        "t",
        sampler=fifo,
        remover=fifo,
        max_size=9,
        rate_limiter=hr.rate_limiters.Queue(1),
        max_times_sampled=1,
    )
    with hr.Replay(hr.Signature.like({"n": 0}), [table]) as replay, hr.Server({"r": replay}) as server:
        client = hr.Client(server.address, timeout=60.0)
        remote = client.replay("r")
        writer = remote.writer(items=[hr.ItemRule("t", 1)], max_pending=3, timeout=0.1)
        for n in range(4):
            writer.append({"n": n})
        connection = client._session.writers()

        def refuse():
            raise OSError("nobody listens")

        monkeypatch.setattr(connection, "_connect", refuse)
        connection.channel.shutdown()
        began = time.monotonic()
        with pytest.raises(hr.Disconnected) as caught:
            writer.append({"n": 4})
        assert 0.1 <= time.monotonic() - began < 10
        assert caught.value.pending == 3
        client._session.abandon()


@pytest.mark.parametrize(
    ("rule", "pending"),
    [
        (hr.ItemRule("t", 2, end=hr.EndOfEpisode.CONTINUE), 4 + 3),
        (hr.ItemRule("t", 3, end=hr.EndOfEpisode.TILE), 4 + 2),
        (hr.ItemRule("t", 2, lookahead=1), 3 + 2),
        (WholeEpisodes("t", 4), 1),
        (PatternWindow("t", 1), 0),
    ],
)
def test_the_error_of_a_lost_server_has_the_exact_number_of_items(monkeypatch, rule, pending):
    """AK6: 3 steps of 2 lanes, an end with a final row in one of them, and one more step."""
    fifo = hr.selectors.Fifo()
    table = hr.Table("t", sampler=fifo, remover=fifo, max_size=99)
    with hr.Replay(hr.Signature.like({"n": 0}), [table]) as replay, hr.Server({"r": replay}) as server:
        client = hr.Client(server.address, timeout=60.0)
        writer = client.replay("r").row_writer(lanes=2, items=[rule])
        lanes, final = np.zeros(1, np.int64), {"n": np.zeros(1, np.int64)}
        step = {"n": np.zeros(2, np.int64)}
        # The server has pages for steps and final rows from here on.
        writer.append(step)
        writer.end_lanes(lanes, final)
        writer.drop_open_lanes()
        writer.flush(5)
        before = len(replay.table("t"))
        connection = client._session.writers()
        reconnecting = connection._connect

        def refuse():
            raise OSError("nobody listens")

        monkeypatch.setattr(connection, "_connect", refuse)
        connection.channel.shutdown()
        for _ in range(3):
            writer.append(step)
        writer.end_lanes(lanes, final)
        writer.append(step)
        with pytest.raises(hr.Disconnected) as caught:
            writer.flush(0.05)
        assert caught.value.pending == pending
        monkeypatch.setattr(connection, "_connect", reconnecting)
        writer.flush(20)
        assert len(replay.table("t")) == before + pending
        client.close()


def test_another_replay_behind_the_same_address_gets_no_steps_of_the_old_one(tmp_path):
    """CL8: of the same size, so that only the schema tells them apart."""
    table = hr.Table.queue("t", 9)
    with (
        hr.Replay(hr.Signature.like({"x": np.int64(0)}), [table]) as old,
        hr.Replay(hr.Signature.like({"x": np.float64(0)}), [table]) as new,
    ):
        place = {"address": None, "unix": tmp_path / "s"}
        server = hr.Server({"r": old}, **place).start()
        with hr.Client(server.address, timeout=5) as client:
            remote = client.replay("r")
            server.stop()
            with hr.Server({"r": new}, **place):
                with pytest.raises(
                    hr.SpecError, match=r"another signature .* x: expected int64\[\], got float64\[\]"
                ):
                    remote.writer(items=[hr.ItemRule("t", 1)])
                with client.replay("r").writer(items=[hr.ItemRule("t", 1)]) as writer:
                    writer.append({"x": 0.5})
                assert new.sample("t", 1, timeout=5)["x"].tolist() == [0.5]


@pytest.mark.parametrize("closes", ["replay", "remote"])
def test_a_writer_whose_items_are_applied_is_closed_without_an_error(closes):
    """CL3: though flush tells that the replay is closed, in process and here."""
    with hr.Replay(hr.Signature.like({"n": 0}), [hr.Table.queue("q", 9)]) as replay:
        with hr.Server({"r": replay}) as server, hr.Client(server.address) as client:
            remote = client.replay("r")
            writer = remote.writer(items=[hr.ItemRule("q", 1)])
            writer.append({"n": 1})
            writer.flush()
            {"replay": replay, "remote": remote}[closes].close()
            with pytest.raises(hr.Closed, match=r"^the replay is closed$"):
                writer.flush()
            writer.close()
