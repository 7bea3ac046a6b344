"""Samples of statistics, and the rates between them."""

import threading

import pytest

import headrace as hr
from headrace.monitor import recorder as recorder_module
from headrace.monitor.rates import rates_over, series
from headrace.monitor.record import record_of, to_json
from headrace.monitor.recorder import KEPT_SAMPLES, Recorder
from headrace.monitor.sources import EachOne, WholeServer
from headrace.server.statistics import ServerStatistics
from headrace.testing import FakeClock

SIGNATURE = hr.Signature.like({"x": 0})


def make_replay(clock, *names):
    tables = [
        hr.Table(n, sampler=hr.selectors.Fifo(), remover=hr.selectors.Fifo(), max_size=1000)
        for n in names or ("t",)
    ]
    return hr.Replay(SIGNATURE, tables, clock=clock)


@pytest.fixture
def clock():
    return FakeClock()


def insert(replay, count, table="t"):
    with replay.writer(items=[hr.ItemRule(table, 1)]) as writer:
        for x in range(count):
            writer.append({"x": x})


def test_rates_are_those_of_the_counts_between_two_samples(clock):
    with make_replay(clock, "t", "other") as replay:
        recorder = Recorder(EachOne({"r": replay}))
        recorder.take()
        for inserts, samples in ((10, 0), (4, 30), (0, 5)):
            clock.advance(2.0)
            insert(replay, inserts)
            if samples:
                replay.sample("t", samples)
            recorder.take()
        found = recorder.since(0)
        points = series(found)["replays"]["r"]
        assert points["t"]["inserts"] == [5, 2, 0]
        assert points["t"]["samples"] == [0, 15, 2.5]
        assert points["t"]["size"] == [10, 14, 14]
        assert points["other"]["inserts"] == [0, 0, 0]
        assert rates_over(found, "r", 600)["t"].samples == pytest.approx(35 / 6)
        assert rates_over(found, "r", 2)["t"].samples == pytest.approx(2.5)
        assert rates_over(found, "r", 4)["t"].inserts == pytest.approx(1)


def test_a_reset_between_samples_gives_no_negative_rate(clock):
    with make_replay(clock) as replay:
        recorder = Recorder(EachOne({"r": replay}))
        insert(replay, 10)
        recorder.take()
        clock.advance(1.0)
        replay.reset("t")
        insert(replay, 3)
        recorder.take()
        assert series(recorder.since(0))["replays"]["r"]["t"]["inserts"] == [3]


def test_a_page_that_asks_for_news_gets_each_sample_once(clock):
    with make_replay(clock) as replay:
        recorder = Recorder(EachOne({"r": replay}))
        known, seen = 0, []
        for count in (1, 3, 0, 2):
            for _ in range(count):
                clock.advance(1.0)
                insert(replay, 1)
                recorder.take()
            news = series(recorder.since(known))
            known = news["number"]
            seen += news["replays"]["r"]["t"]["size"]
        # The first sample of all is only compared with.
        assert seen == [2, 3, 4, 5, 6]


def test_ten_minutes_are_kept(clock):
    with make_replay(clock) as replay:
        recorder = Recorder(EachOne({"r": replay}))
        for _ in range(KEPT_SAMPLES + 5):
            clock.advance(1.0)
            recorder.take()
        kept = recorder.since(0)
        assert len(kept) == KEPT_SAMPLES
        assert kept[-1].number == KEPT_SAMPLES + 5
        assert series(kept)["count"] == 600


def test_a_closed_replay_keeps_its_last_numbers(clock):
    with make_replay(clock) as replay:
        recorder = Recorder(EachOne({"r": replay}))
        insert(replay, 7)
        recorder.take()
    clock.advance(1.0)
    recorder.take()
    found = record_of(recorder, {"r": SIGNATURE}, recorder.latest.seconds)
    assert found["replays"]["r"]["state"] == "closed"
    assert found["replays"]["r"]["tables"]["t"]["size"] == 7
    assert series(recorder.since(0))["replays"]["r"]["t"]["size"] == [None]


class Failing:
    """A replay behind a lost connection, and a collector whose workers died."""

    def __init__(self, error):
        self.error = error

    def statistics(self):
        raise self.error

    table = None


def test_a_replay_that_does_not_answer_hides_no_other(clock):
    with make_replay(clock) as replay:
        recorder = Recorder(
            EachOne({"lost": Failing(hr.Disconnected("gone")), "r": replay}), Failing(hr.Closed("shut"))
        )
        recorder.take()
        found = record_of(recorder, {"lost": None, "r": SIGNATURE}, recorder.latest.seconds)
        assert found["replays"]["lost"]["state"] == "Disconnected: gone"
        assert found["replays"]["lost"]["tables"] == {}
        assert found["replays"]["r"]["state"] == "open"
        assert found["collector"] is None


def test_the_gate_of_each_limiter():
    tables = [
        hr.Table(
            "ratio",
            sampler=hr.selectors.Fifo(),
            remover=hr.selectors.Fifo(),
            max_size=100,
            rate_limiter=hr.rate_limiters.SampleToInsertRatio(2, 3, 4),
        ),
        hr.Table(
            "least",
            sampler=hr.selectors.Fifo(),
            remover=hr.selectors.Fifo(),
            max_size=100,
            rate_limiter=hr.rate_limiters.MinSize(9),
        ),
    ]
    with hr.Replay(SIGNATURE, tables) as replay:
        insert(replay, 4, "ratio")
        insert(replay, 4, "least")
        replay.sample("ratio", 3)
        recorder = Recorder(EachOne({"r": replay}))
        recorder.take()
        found = record_of(recorder, {"r": SIGNATURE}, recorder.latest.seconds)["replays"]["r"]["tables"]
        assert found["ratio"]["gate"] == {"difference": 5, "is_bounded": True, "items_missing": 0}
        assert found["least"]["gate"] == {"difference": 4, "is_bounded": False, "items_missing": 5}
        assert found["ratio"]["rates"] == {"now": None, "ten_minutes": None}
        assert b'"min_diff":null' in to_json(found["least"])


def test_the_thread_samples_until_it_is_stopped(clock):
    taken = threading.Semaphore(0)

    class Watched:
        def statistics(self):
            taken.release()
            return replay.statistics()

    with make_replay(clock) as replay:
        recorder = Recorder(EachOne({"r": Watched()}), interval=0.001)
        recorder.start()
        for _ in range(5):
            assert taken.acquire(timeout=10)
        recorder.stop()
        recorder.stop()
        number = recorder.latest.number
        assert number >= 5
        assert not [t for t in threading.enumerate() if t.name == "headrace-monitor-recorder"]


def test_an_unexpected_error_is_logged_and_sampling_goes_on(clock, caplog):
    calls = iter([None, ZeroDivisionError("odd"), None])
    done = threading.Event()

    class Odd:
        def statistics(self):
            error = next(calls, None)
            if error is not None:
                raise error
            if recorder._samples:
                done.set()
            return replay.statistics()

    with make_replay(clock) as replay:
        recorder = Recorder(EachOne({"r": Odd()}), interval=0.001)
        recorder.start()
        assert done.wait(10)
        recorder.stop()
        assert "a sample of the monitor failed" in caplog.text


# ---- servers and queues --------------------------------------------------------------------------------------------


class Counting:
    """A server with the numbers that a test gives it."""

    def __init__(self, served):
        self.served, self.bytes_in = served, 0

    def statistics(self):
        if self.served is None:
            raise hr.Closed("the server is stopped")
        records = {name: each.statistics() for name, each in self.served.items()}
        return ServerStatistics(1, 2, 3, 4, 5, self.bytes_in, 60, 7.0, "1.2", 2, 1, 30.0, 0.5, records)


def test_rates_of_a_server_and_its_queues(clock, monkeypatch):
    now = iter([100.0, 102.0, 104.0])
    monkeypatch.setattr(recorder_module.time, "monotonic", lambda: next(now))
    with make_replay(clock) as replay, hr.BatchQueue({"x": 0}, 2, num_buffers=4) as queue:
        server = Counting({"r": replay, "q": queue})
        recorder = Recorder(WholeServer(server, server.served))
        recorder.take()
        for x in range(6):
            queue.send({"x": x})
        server.bytes_in = 500
        recorder.take()
        queue.sample()
        recorder.take()
    found = recorder.since(0)
    points = series(found)
    assert points["queues"] == {
        "q": {"samples_received": [3, 0], "samples_delivered": [0, 1], "size": [6, 4]}
    }
    assert points["server"] == {"bytes_in": [250, 0], "bytes_out": [0, 0]}
    record = record_of(recorder, {"r": replay.signature}, 104.0)
    assert list(record["replays"]) == ["r"]
    assert record["queues"]["q"]["state"] == "open"
    assert record["queues"]["q"]["rates"]["now"] == {"samples_received": 1.5, "samples_delivered": 0.5}
    assert record["server"]["rates"]["now"] == {"bytes_in": 125, "bytes_out": 0}
    assert (record["server"]["connections"], record["server"]["protocol_errors"]) == (1, 4)


def test_a_server_that_stopped_keeps_its_last_numbers(clock):
    with make_replay(clock) as replay, hr.BatchQueue({"x": 0}, 2) as queue:
        server = Counting({"r": replay, "q": queue})
        recorder = Recorder(WholeServer(server, server.served))
        recorder.take()
        server.served = None
        recorder.take()
    record = record_of(recorder, {"r": None}, 0.0)
    assert record["server"] is None
    assert (record["replays"]["r"]["state"], record["queues"]["q"]["state"]) == ("closed", "closed")
    assert record["replays"]["r"]["tables"]["t"]["size"] == 0
    assert series(recorder.since(0))["queues"]["q"]["size"] == [None]
