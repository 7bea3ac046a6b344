"""Samples of statistics, and the rates between them."""

import threading

import pytest

import headrace as hr
from headrace.monitor.rates import rates_over, series
from headrace.monitor.record import record_of, to_json
from headrace.monitor.recorder import KEPT_SAMPLES, Recorder
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
        recorder = Recorder({"r": replay})
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
        recorder = Recorder({"r": replay})
        insert(replay, 10)
        recorder.take()
        clock.advance(1.0)
        replay.reset("t")
        insert(replay, 3)
        recorder.take()
        assert series(recorder.since(0))["replays"]["r"]["t"]["inserts"] == [3]


def test_a_page_that_asks_for_news_gets_each_sample_once(clock):
    with make_replay(clock) as replay:
        recorder = Recorder({"r": replay})
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
        recorder = Recorder({"r": replay})
        for _ in range(KEPT_SAMPLES + 5):
            clock.advance(1.0)
            recorder.take()
        kept = recorder.since(0)
        assert len(kept) == KEPT_SAMPLES
        assert kept[-1].number == KEPT_SAMPLES + 5
        assert series(kept)["count"] == 600


def test_a_closed_replay_keeps_its_last_numbers(clock):
    with make_replay(clock) as replay:
        recorder = Recorder({"r": replay})
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
            {"lost": Failing(hr.Disconnected("gone")), "r": replay}, Failing(hr.Closed("shut"))
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
        recorder = Recorder({"r": replay})
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
        recorder = Recorder({"r": Watched()}, interval=0.001)
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
        recorder = Recorder({"r": Odd()}, interval=0.001)
        recorder.start()
        assert done.wait(10)
        recorder.stop()
        assert "a sample of the monitor failed" in caplog.text
