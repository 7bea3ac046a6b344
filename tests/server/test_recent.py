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


class Sender:
    """The connection of a session."""

    def __init__(self, sessions, known=0):
        self.sessions = sessions
        self.stored = sessions.begin(b"one", self, known)

    def close(self):
        self.sessions.end(b"one", self, self.stored)


def test_a_queue_knows_the_samples_of_a_session_for_a_day():
    clock = FakeClock()
    sessions = SenderSessions(clock)
    sender = Sender(sessions)
    sender.stored = 7
    clock.advance(25 * HOURS)  # The connection is open.
    sender.close()
    clock.advance(23 * HOURS)
    sender = Sender(sessions)
    assert sender.stored == 7
    sender.stored = 8
    sender.close()
    clock.advance(23 * HOURS)
    assert Sender(sessions).stored == 8
    clock.advance(2 * HOURS)
    assert Sender(sessions).stored == 8  # The one before was open until now.


def test_a_queue_forgets_a_session_after_a_day():
    clock = FakeClock()
    sessions = hr.BatchQueue(0, 2, clock=clock)._core.sessions
    sender = Sender(sessions)
    sender.stored = 7
    sender.close()
    clock.advance(25 * HOURS)
    assert Sender(sessions).stored == 0
    assert Sender(sessions, known=7).stored == 7


def test_a_session_that_comes_back_before_its_connection_has_ended_goes_on_where_it_was():
    sessions = SenderSessions(FakeClock())
    first = Sender(sessions)
    first.stored = 5
    second = Sender(sessions)
    second.stored = 6
    first.close()  # Late: it is not the one of the session any more.
    assert Sender(sessions).stored == 6


def test_a_server_knows_the_items_of_a_writer_for_a_day():
    clock = FakeClock()
    sessions = WriterSessions(clock)
    key, progress = SessionKey(bytes(16), 0), Progress({"t": 3}, None)
    for hours, found in ((23, progress), (25, None)):
        sessions.lost(key, progress)
        clock.advance(hours * HOURS)
        assert sessions.resume(key) is found
