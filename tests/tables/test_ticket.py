"""Waits without threads: tickets are served in order, become impossible, fail and expire (replay L6 to L12)."""

import ast
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from plain_kernels import fewer

import headrace as hr
import headrace.tables
from headrace.replay.public import core_of
from headrace.tables.description.rate_limiters import MinSize, Queue
from headrace.tables.description.selectors import Fifo
from headrace.tables.pending import Pending
from headrace.testing import FakeClock

SIGNATURE = hr.Signature.like({"n": np.int64(0)})
SOURCES = sorted(Path(headrace.tables.__file__).parent.rglob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_tables_know_no_thread_and_no_clock(path):
    imported = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module)
    assert not imported & {
        "threading",
        "_thread",
        "time",
        "concurrent.futures",
        "headrace.clock",
        "headrace.waits",
    }


class Line:
    """A table on a clock that stands still, and callers without a thread that draw in the call of their ticket."""

    def __init__(self, limiter=None, **options):
        limiter = limiter or MinSize(1)
        table = hr.Table("t", sampler=Fifo(), remover=Fifo(), max_size=2000, rate_limiter=limiter, **options)
        self.clock = FakeClock()
        self.replay = hr.Replay(SIGNATURE, [table], seed=0, clock=self.clock)
        self.core = core_of(self.replay)
        self.live = self.core.live_table("t")
        self.writer = self.replay.writer(items=[hr.ItemRule("t", 1)], max_pending=10_000)
        self.served, self.failed = [], []

    def ask(self, n, name, deadline=None):
        def call(ticket):
            if ticket.failure is not None:
                self.failed.append((name, ticket.failure))
                return
            assert self.live.is_turn_of(ticket)
            self.served.append((name, self.live.draw(n).keys.tolist()))
            self.live.leave(ticket)

        with self.core.lock:
            return self.live.ask(n, call, deadline)

    def put(self, count):
        for n in range(count):
            self.writer.append({"n": n})


def test_a_thousand_tickets_are_served_in_order_without_a_thread():
    line = Line(max_times_sampled=1)
    for name in range(1000):
        line.ask(1, name)
    assert line.replay.table("t").statistics().waiting_samples == 1000
    line.clock.advance(2.0)
    line.put(600)
    assert line.served == [(name, [name + 1]) for name in range(600)]
    found = line.replay.table("t").statistics()
    assert (found.waiting_samples, found.longest_waiting_sample) == (400, 2.0)
    assert found.seconds_waiting_samples == 1200.0
    line.put(400)
    assert [name for name, _ in line.served] == list(range(1000))
    assert line.failed == []
    line.replay.close()


def test_one_change_serves_all_that_it_lets_through():
    # L11: a thousand calls in one another would be more than Python allows
    line = Line(MinSize(2))
    for name in range(1000):
        line.ask(1, name)
    line.put(1)
    assert line.served == []
    line.put(1)
    assert [name for name, _ in line.served] == list(range(1000))
    line.replay.close()


def test_a_large_batch_is_not_overtaken():
    # L11
    line = Line(max_times_sampled=1)
    line.ask(3, "large")
    line.ask(1, "small")
    line.put(2)
    assert line.served == []
    line.put(2)
    assert line.served == [("large", [1, 2, 3]), ("small", [4])]
    line.replay.close()


def test_a_ticket_that_leaves_lets_the_next_go():
    line = Line(max_times_sampled=1)
    large = line.ask(3, "large")
    line.ask(1, "small")
    line.put(1)
    with line.core.lock:
        line.live.leave(large)
        line.live.leave(large)
    assert line.served == [("small", [1])]
    line.replay.close()


def test_what_can_be_served_at_once_is_called_before_ask_returns():
    line = Line()
    line.put(1)
    line.ask(2, "now")
    assert line.served == [("now", [1, 1])]
    line.replay.close()


def test_a_draw_opens_the_gate_for_items_and_these_for_the_next_ticket():
    # I3, L11: the opener of one gate goes through the other, too
    line = Line(Queue(2), max_times_sampled=1)
    line.put(6)
    assert line.writer.pending == 4
    line.ask(2, "first")
    line.ask(1, "second")
    assert line.served == [("first", [1, 2]), ("second", [3])]
    assert line.writer.pending == 1
    line.replay.close()


def test_an_owner_that_comes_later_looks_again():
    # L8: the gate falls back between the call and the owner's coming
    line = Line(max_times_sampled=1)
    called = []
    with line.core.lock:
        ticket = line.live.ask(1, called.append)
        line.live.ask(1, called.append)
    line.put(1)
    assert called == [ticket]
    line.replay.delete("t", [1])
    with line.core.lock:
        assert not line.live.is_turn_of(ticket)
    line.put(1)
    assert called == [ticket, ticket]
    with line.core.lock:
        assert line.live.is_turn_of(ticket)
    line.replay.close()


# ---- tickets that are not served ---------------------------------------------------------------------------------


def test_tickets_that_become_impossible_fail():
    # L10, T9: each of them, and the others stay in line
    line = Line(Queue(8))
    for name, n in enumerate((6, 2, 7, 5)):
        line.ask(n, name)
    line.replay.table("t").configure(rate_limiter=Queue(5))
    assert [name for name, _ in line.failed] == [0, 2]
    assert all(isinstance(failure, ValueError) and "at most 5" in str(failure) for _, failure in line.failed)
    line.ask(6, "new")
    assert [name for name, _ in line.failed] == [0, 2, "new"]
    line.put(5)
    assert [name for name, _ in line.served] == [1]
    line.put(2)
    assert [name for name, _ in line.served] == [1, 3]
    line.replay.close()


def test_close_fails_every_ticket():
    # L12
    line = Line(MinSize(3))
    for name in range(3):
        line.ask(1, name)
    line.replay.close()
    assert [name for name, _ in line.failed] == [0, 1, 2]
    assert all(isinstance(failure, hr.Closed) for _, failure in line.failed)


def test_tickets_expire():
    # L9
    line = Line()
    line.ask(1, "long", deadline=9.0)
    line.ask(2, "short", deadline=4.0)
    line.ask(3, "ever")
    with line.core.lock:
        assert line.live.expire_tickets() == 4.0
        line.clock.advance(4.0)
        assert line.live.expire_tickets() == 9.0
        line.clock.advance(5.0)
        assert line.live.expire_tickets() is None
    assert [(name, type(failure)) for name, failure in line.failed] == [
        ("short", hr.DeadlineExceeded),
        ("long", hr.DeadlineExceeded),
    ]
    assert "sample of 2 waited 4 s: size 0" in str(line.failed[0][1])
    line.put(1)
    assert [name for name, _ in line.served] == ["ever"]
    line.replay.close()


def test_a_limiter_that_raises_fails_the_ticket_and_not_the_writer():
    class Broken(hr.rate_limiters.CustomRateLimiter):
        def allows_insert(self, inserts, samples, deletes, n):
            return True

        def allows_sample(self, inserts, samples, deletes, n):
            raise KeyError("mine")

    line = Line(Broken(min_size=2))
    for name in range(2):
        line.ask(1, name)
    line.put(2)
    assert [(name, type(failure)) for name, failure in line.failed] == [(0, KeyError), (1, KeyError)]
    assert len(line.replay.table("t")) == 2
    line.replay.close()


def test_a_ticket_that_earlier_ones_make_impossible_fails():
    # L10: it could be served when it was asked for
    line = Line(Queue(3), max_times_sampled=1)
    line.put(3)
    line.replay.table("t").configure(rate_limiter=Queue(1))
    with line.core.lock:
        first = line.live.ask(2, lambda _: None)
    line.ask(3, "large")
    assert line.failed == []
    with line.core.lock:
        line.live.draw(2)
        line.live.leave(first)
    assert [(name, type(failure)) for name, failure in line.failed] == [("large", ValueError)]
    line.replay.close()


# ---- the items of a writer -----------------------------------------------------------------------------------------


def test_tickets_of_a_writer_wait_until_so_few_are_pending():
    # I4, I5: each for its own number, whatever the order
    pending, called = Pending(lambda: 0.0), []
    pending.count = 3
    for most in (0, 2, 1, 3):
        pending.ask(most, lambda ticket: called.append(ticket.wanted))
    assert called == [3]
    for count, expected in ((2, [3, 2]), (1, [3, 2, 1]), (0, [3, 2, 1, 0])):
        pending.count = count
        pending.left()
        assert called == expected


def test_tickets_of_a_writer_fail_with_its_table():
    pending, called = Pending(lambda: 0.0), []
    pending.count = 1
    pending.ask(0, called.append)
    pending.fail("t", KeyError("mine"))
    pending.ask(0, called.append)
    assert [type(ticket.failure) for ticket in called] == [RuntimeError] * 2
    for ticket in called:
        with pytest.raises(RuntimeError, match=r"table 't' failed .* KeyError\('mine'\)"):
            pending.is_turn_of(ticket)


# ---- a plain model -------------------------------------------------------------------------------------------------


class Tickets(RuleBasedStateMachine):
    """A queue with a limiter, beside a list of what waits and three counts."""

    def __init__(self):
        super().__init__()
        self.bound = 4
        self.line = Line(Queue(self.bound), max_times_sampled=1)
        self.waiting, self.expected, self.gone = [], [], []
        self.tickets = {}
        self.made = self.inserted = self.sampled = 0

    def settle(self):
        """What the gate lets in goes in, then the batch at the head: until nothing moves."""
        moves = True
        while moves:
            let_in = min(
                self.made,
                max(1 - self.inserted + self.sampled, self.bound + self.sampled - self.inserted, 0)
                + self.inserted,
            )
            moves, self.inserted = let_in > self.inserted, max(let_in, self.inserted)
            if not self.waiting:
                continue
            name, n = self.waiting[0]
            if self.inserted - self.sampled >= n:
                self.expected.append((name, list(range(self.sampled + 1, self.sampled + n + 1))))
                self.sampled += n
            elif n > self.bound:
                self.gone.append(name)
            else:
                continue
            self.waiting.pop(0)
            moves = True

    @rule(n=st.integers(1, 6))
    def ask(self, n):
        name = len(self.tickets)
        self.tickets[name] = self.line.ask(n, name)
        if n > self.bound and n > self.inserted - self.sampled:
            self.gone.append(name)
        else:
            self.waiting.append((name, n))
        self.settle()

    @rule(count=st.integers(1, 5))
    def put(self, count):
        for _ in range(count):
            self.line.put(1)
            self.made += 1
            self.settle()

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def leave(self, data):
        name, n = data.draw(st.sampled_from(self.waiting))
        self.waiting.remove((name, n))
        with self.line.core.lock:
            self.line.live.leave(self.tickets[name])
        self.settle()

    @rule(bound=st.integers(1, 8))
    def configure(self, bound):
        self.bound = bound
        self.line.replay.table("t").configure(rate_limiter=Queue(bound))
        available = self.inserted - self.sampled
        for name, n in list(self.waiting):
            if n > bound and n > available:
                self.waiting.remove((name, n))
                self.gone.append(name)
        self.settle()

    @invariant()
    def agrees(self):
        found = self.line.replay.table("t").statistics()
        assert self.line.served == self.expected
        assert [name for name, _ in self.line.failed] == self.gone
        assert (found.waiting_samples, found.pending_inserts) == (
            len(self.waiting),
            self.made - self.inserted,
        )

    def teardown(self):
        self.line.replay.close()


TestTickets = Tickets.TestCase
TestTickets.settings = settings(max_examples=fewer(60), stateful_step_count=30, deadline=None)
