"""server AK3: how long a server remembers how far it is with a client that is gone."""

from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.server.recent import SECONDS, Recent
from headrace.server.sender_sessions import SenderSessions
from headrace.server.serving.writers.writer_sessions import Progress, SessionKey, WriterSessions
from headrace.testing import FakeClock

HOURS = SECONDS / 24


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["put", "get", "pop", "wait"]), st.integers(0, 5)), max_size=40),
    st.integers(1, 4),
)
def test_entries_are_those_of_a_model(calls, most):
    clock = FakeClock()
    recent: Recent[int, int] = Recent(clock, most)
    model: list[tuple[int, float, int]] = []  # key, time, value: the last put last
    for value, (call, key) in enumerate(calls):
        now = clock.monotonic()
        model = [each for each in model if each[1] >= now - SECONDS]
        found = next((each[2] for each in model if each[0] == key), None)
        match call:
            case "put":
                recent.put(key, value)
                model = [*(each for each in model if each[0] != key), (key, now, value)][-most:]
            case "get":
                assert recent.get(key) == found
            case "pop":
                assert recent.pop(key) == found
                model = [each for each in model if each[0] != key]
            case "wait":
                clock.advance(5 * HOURS * key)
    assert len(recent) == len([each for each in model if each[1] >= clock.monotonic() - SECONDS])


def test_a_queue_knows_the_samples_of_a_session_for_a_day():
    clock = FakeClock()
    sessions = SenderSessions(clock)
    sessions.set_stored(b"one", 7)
    clock.advance(23 * HOURS)
    assert sessions.stored(b"one") == 7
    sessions.set_stored(b"one", 8)
    clock.advance(23 * HOURS)
    assert sessions.stored(b"one") == 8
    clock.advance(2 * HOURS)
    assert sessions.stored(b"one") == 0


def test_a_queue_takes_the_clock_that_it_was_given():
    clock = FakeClock()
    queue = hr.BatchQueue(0, 2, clock=clock)
    sessions = queue._core.sessions
    sessions.set_stored(b"one", 7)
    clock.advance(25 * HOURS)
    assert sessions.stored(b"one") == 0


def test_a_server_knows_the_items_of_a_writer_for_a_day():
    clock = FakeClock()
    sessions = WriterSessions(clock)
    key, progress = SessionKey("r", bytes(16), 0), Progress({"t": 3}, None)
    for hours, found in ((23, progress), (25, None)):
        sessions.lost(key, progress)
        clock.advance(hours * HOURS)
        assert sessions.resume(key) is found
