"""server AK1, AK3, AK4, AK6, LP2, LP3: connections of writers that are cut anywhere."""

import os
import tempfile
import threading
from contextlib import nullcontext, suppress
from unittest import mock

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

import headrace as hr
from headrace.errors import Closed
from headrace.replay.public import core_of
from headrace.server.client.writers import step_memory
from headrace.server.messages.operations import AppendSteps, Operation
from headrace.server.messages.requests import SendSamples
from headrace.server.messages.writing import OpenWriter
from headrace.server.serving.writers.row_writer import ServedRowWriter
from headrace.server.serving.writers.writer_sessions import sessions_of
from tests.server.remote_writers import CutChannel, RemotelyWritten
from tests.server.test_stopping import until

SIGNATURE = hr.Signature.like({"n": np.int64(0), "who": np.int64(0)})
VIEWS = {"n": hr.View("n"), "who": hr.View("who")}
LENGTH, STRIDE = 3, 2
DROP, CONTINUE = hr.EndOfEpisode.DROP, hr.EndOfEpisode.CONTINUE


def replay_of(limiter=None, **settings):
    fifo = hr.selectors.Fifo()
    limiter = limiter or hr.rate_limiters.MinSize(1)
    table = hr.Table(
        "t", sampler=fifo, remover=fifo, max_size=10_000, rate_limiter=limiter, max_times_sampled=1
    )
    return RemotelyWritten(SIGNATURE, [table], **settings)


def pages_are_taken():
    """Writers that come back find that others went on in their pages, so that steps in reach are stored again."""
    return mock.patch.object(ServedRowWriter, "resume", return_value=False)


class Windows(RuleBasedStateMachine):
    """Two writers and one table; the windows of each are listed by a plain model."""

    @initialize(
        bound=st.sampled_from([None, 3]),
        lanes=st.sampled_from([1, 2]),
        end=st.sampled_from([DROP, CONTINUE]),
        is_on_disk=st.booleans(),
        in_place=st.booleans(),
        keeps_pages=st.booleans(),
    )
    def begin(self, bound, lanes, end, is_on_disk, in_place, keeps_pages):
        self.folder = tempfile.TemporaryDirectory()
        self.pages = nullcontext() if keeps_pages else pages_are_taken()
        self.pages.__enter__()
        # Steps of any size lie in shared memory, in blocks that are soon full.
        self.patch = mock.patch.multiple(step_memory, _LEAST_SHARED_NBYTES=1, _MOST_STEPS=4)
        self.patch.start()
        # Without a bound, so that no item waits in the memory of a server that is killed.
        self.may_forget = is_on_disk and bound is None
        settings = {"path": f"{self.folder.name}/replay", "capacity": 4000} if is_on_disk else {}
        settings["unix"] = f"{self.folder.name}/socket" if in_place else None
        self.replay = replay_of(hr.rate_limiters.Queue(bound) if bound else None, **settings)
        rules = [hr.ItemRule("t", LENGTH, STRIDE, end=end)]
        self.lanes, self.goes_on = lanes, end is CONTINUE
        history = rules[0].reach if self.goes_on else 5
        self.writers = [
            self.replay.remote.row_writer(lanes=lanes, items=rules, history=history) for _ in range(2)
        ]
        assert all(bool(writer._stream._memory.shared_nbytes) == in_place for writer in self.writers)
        self.numbers = [0, 0]
        # Of each writer and lane: the rows of the open episode, those of the run that windows are made of, and the
        # items so far in the order of their making.
        self.open, self.runs, self.expected, self.seen = (
            [[[] for _ in range(lanes)] for _ in range(2)] for _ in range(4)
        )

    def add_row(self, who, lane, n):
        self.open[who][lane].append(n)
        run = self.runs[who][lane]
        run.append(n)
        if len(run) >= LENGTH and (len(run) - LENGTH) % STRIDE == 0:
            self.expected[who][lane].append(run[-LENGTH:])

    @rule(who=st.integers(0, 1), steps=st.integers(1, 7))
    def append(self, who, steps):
        for _ in range(steps):
            number = self.numbers[who]
            self.numbers[who] += 1
            ns = number * 10 + np.arange(self.lanes)
            step = {"n": ns, "who": np.full(self.lanes, who)}
            self.writers[who].append({k: v[0] for k, v in step.items()} if self.lanes == 1 else step)
            for lane in range(self.lanes):
                self.add_row(who, lane, int(ns[lane]))

    @rule(who=st.integers(0, 1), lane=st.integers(0, 1), has_final=st.booleans())
    def end(self, who, lane, has_final):
        lane = min(lane, self.lanes - 1)
        if not self.open[who][lane]:
            return
        final = self.numbers[who] * 10 + lane
        self.numbers[who] += 1
        values = {"n": np.array([final]), "who": np.array([who])} if has_final else None
        self.writers[who].end_lanes(np.array([lane]), values)
        if has_final:
            self.add_row(who, lane, final)
        self.open[who][lane].clear()
        if not self.goes_on:
            self.runs[who][lane].clear()

    @rule(who=st.integers(0, 1))
    def end_streams(self, who):
        if self.goes_on:
            self.writers[who].end_streams()
            for run in self.runs[who]:
                run.clear()

    @rule(nbytes=st.integers(0, 400))
    def cut_and_forget(self, nbytes):
        """The server has no memory of writers but on the disk."""
        if not self.may_forget:
            return
        self.cut(True, nbytes)
        sessions_of(core_of(self.replay.local))._left._entries.clear()

    @rule(who=st.integers(0, 1), length=st.integers(1, 5))
    def create(self, who, length):
        rows = self.open[who][0]
        if len(rows) >= length:
            self.writers[who].create_item("t", length)
            self.expected[who][0].append(rows[-length:])

    @rule(of_server=st.booleans(), nbytes=st.integers(0, 400))
    def cut(self, of_server, nbytes):
        replay = self.replay
        channel = replay.channel_of_server() if of_server else replay.channel_of_writers()
        if channel is not None:
            channel.left = nbytes

    @rule(most=st.integers(1, 5))
    def take(self, most):
        count = min(most, len(self.replay.local.table("t")))
        if count:
            self._take(count)

    def _take(self, count):
        batch = self.replay.local.sample("t", count, timeout=0)
        masks = (
            np.ones(batch.data["n"].reshape(count, -1).shape, np.bool_) if batch.mask is None else batch.mask
        )
        for row, who, mask in zip(
            batch.data["n"].reshape(count, -1), batch.data["who"].reshape(count, -1), masks, strict=True
        ):
            numbers = row[mask].tolist()
            self.seen[who[0]][numbers[0] % 10].append(numbers)

    @rule(who=st.integers(0, 1))
    def flush(self, who):
        """Everything that was acknowledged is in the table, or was taken from it."""
        thread = threading.Thread(target=self._take_all, args=(who,))
        self.done = False
        thread.start()
        try:
            self.writers[who].flush(20)
        finally:
            self.done = True
            thread.join()
        count = len(self.replay.local.table("t"))
        if count:
            self._take(count)
        assert self.seen[who] == self.expected[who]

    def _take_all(self, _):
        while not self.done:
            try:
                batch = len(self.replay.local.table("t"))
                if batch:
                    self._take(batch)
            except (hr.errors.DeadlineExceeded, Closed):
                pass
            threading.Event().wait(0.001)

    def teardown(self):
        if not hasattr(self, "writers"):
            return
        try:
            for who in range(2):
                self.flush(who)
            for writer in self.writers:
                writer.close(20)
            assert self.seen == self.expected
            self.replay.end()
            store = self.replay.local.statistics().store
            assert store.pages == 0, "pages are held by connections that have ended"
        finally:
            self.replay.close()
            self.folder.cleanup()
            self.patch.stop()
            self.pages.__exit__(None, None, None)


TestWindows = Windows.TestCase
TestWindows.settings = settings(
    max_examples=int(os.environ.get("HEADRACE_CUTS", "15")), stateful_step_count=20, deadline=None
)


def items(replay):
    count = len(replay.local.table("t"))
    if not count:
        return []
    return replay.local.sample("t", count, timeout=0).data["n"].reshape(count, -1).tolist()


@pytest.fixture
def replay():
    with replay_of() as made:
        yield made


@pytest.mark.parametrize("nbytes", [0, 1, 60])
@pytest.mark.parametrize("history", [None, 5])
def test_an_operation_whose_acknowledgement_is_lost_is_applied_once(replay, nbytes, history):
    writer = replay.remote.row_writer(items=[hr.ItemRule("t", 2)], history=history)
    for n in range(6):
        writer.append({"n": n, "who": 0})
    writer.flush(20)
    replay.channel_of_server().left = nbytes
    for n in range(6, 9):
        writer.append({"n": n, "who": 0})
    writer.flush(20)
    assert replay.server.statistics().connections_total == 3
    assert items(replay) == [[n, n + 1] for n in range(8)]


# ---- operations that do not arrive -----------------------------------------------------------------------------------


def drops(replay, numbers):
    """Lets the connection of writers drop the operations in whose steps a number is, and takes it out."""

    def is_dropped(message):
        if not isinstance(message, Operation):
            return False
        first = message.sequence + 1 - (message.steps if isinstance(message, AppendSteps) else 1)
        found = [number for number in numbers if first <= number <= message.sequence]
        if found:
            numbers.remove(found[0])
        return bool(found)

    CutChannel.is_dropped = staticmethod(is_dropped)


@pytest.fixture
def dropping(replay):
    yield lambda numbers: drops(replay, numbers)
    CutChannel.is_dropped = staticmethod(lambda _: False)


class CutAgain:
    """Ends the second connection of a writer when so many of its operations have been sent again.

    Attributes:
        openings: number of connections over which the writer was opened.
    """

    def __init__(self, replay, arrived):
        self._replay, self._left = replay, arrived
        self.openings = 0

    def __call__(self, message):
        self.openings += isinstance(message, OpenWriter)
        if self.openings != 1 or not isinstance(message, Operation):
            return False
        self._left -= 1
        if self._left == -1:
            self._replay.channel_of_writers().shutdown()
        return self._left < 0


@pytest.mark.parametrize("arrived", [0, 1, 3])
@pytest.mark.parametrize("history", [None, 5])
def test_a_connection_is_lost_again_while_operations_are_sent_again(replay, dropping, arrived, history):
    """AK3: items whose confirmation was lost exist, also those that the client had not come to send again."""
    writer = replay.remote.row_writer(items=[hr.ItemRule("t", 2)], history=history)
    for n in range(3):
        writer.append({"n": n, "who": 0})
    writer.flush(20)
    server, lost = replay.channel_of_server(), replay.channel_of_writers()
    # The server applies what comes from here on, and the client is not told.
    server.is_dropped = lambda _: True
    for n in range(3, 9):
        writer.append({"n": n, "who": 0})
        writer._stream.send_collected()
    until(lambda: len(replay.local.table("t")) == 8)
    again = CutAgain(replay, arrived)
    CutChannel.is_dropped = staticmethod(again)
    with pages_are_taken():
        lost.shutdown()
        writer.flush(20)
    assert again.openings == 2
    assert items(replay) == [[n, n + 1] for n in range(8)]


@pytest.mark.parametrize("dropped", [[3], [1], [7], [3, 8], [2, 5, 9]])
def test_operations_that_do_not_arrive_are_sent_again(replay, dropping, dropped):
    """AK3, AK4: the server ends the connection; skipping them would lose their items without a word."""
    writer = replay.remote.row_writer(items=[hr.ItemRule("t", 2)])
    dropping(dropped)
    for n in range(10):
        writer.append({"n": n, "who": 0})
        writer._stream.send_collected()
    writer.flush(20)
    assert not dropped
    assert items(replay) == [[n, n + 1] for n in range(9)]
    assert replay.server.statistics().protocol_errors >= 1


def test_other_writers_of_the_connection_go_on(replay, dropping):
    """AK3, AK4"""
    writers = [replay.remote.row_writer(items=[hr.ItemRule("t", 2)]) for _ in range(2)]
    dropping([4])
    for n in range(8):
        for who, writer in enumerate(writers):
            writer.append({"n": 10 * n + who, "who": who})
            writer._stream.send_collected()
    for writer in writers:
        writer.flush(20)
        writer.close(20)
    found = items(replay)
    for who in range(2):
        assert [pair for pair in found if pair[0] % 10 == who] == [
            [10 * n + who, 10 * (n + 1) + who] for n in range(7)
        ]


def test_operations_that_never_arrive_end_the_writer(replay, dropping):
    """AK6: with the reason and the number of items, instead of without end."""
    writer = replay.remote.row_writer(items=[hr.ItemRule("t", 2)])
    for n in range(3):
        writer.append({"n": n, "who": 0})
    writer.flush(20)
    CutChannel.is_dropped = staticmethod(
        lambda message: isinstance(message, AppendSteps) and message.sequence == 4
    )
    for n in range(3, 7):
        writer.append({"n": n, "who": 0})
        writer._stream.send_collected()
    with pytest.raises(
        Closed, match="expected operation 4, got 5; . items of this writer are not acknowledged"
    ):
        writer.flush(20)
    until(lambda: replay.server.statistics().protocol_errors == 2)
    assert items(replay) == [[0, 1], [1, 2]]


def test_samples_that_do_not_arrive_are_sent_again(dropping):
    """AK3, AK4: a call that waits is told why; all samples are stored, each once."""
    with (
        hr.BatchQueue({"n": np.int64(0)}, 10) as queue,
        hr.Server({"q": queue}) as server,
        hr.Client(server.address, timeout=20) as client,
    ):
        remote = client.queue("q", max_in_flight=16)
        remote.send({"n": np.int64(0)})
        remote.wait(20)
        first = []
        CutChannel.is_dropped = staticmethod(
            lambda message: isinstance(message, SendSamples) and not (first or first.append(message))
        )
        for n in range(1, 10):
            remote.send({"n": np.int64(n)})
        with suppress(Closed):
            remote.wait(20)
        remote.wait(20)
        assert first
        assert server.statistics().protocol_errors <= 1
        batch, _ = queue.sample(timeout=0)
        assert batch["n"].tolist() == [*range(10)]
        assert queue.statistics().samples_received == 10
