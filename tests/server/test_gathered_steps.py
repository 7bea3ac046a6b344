"""A client sends a lone step at once, and gathers those that come while the server is busy with others."""

import numpy as np
import pytest

import headrace as hr
from headrace.server.client.writers.operation_log import OperationLog
from headrace.server.client.writers.operation_stream import OperationStream
from headrace.server.client.writers.operation_use import NO_USE, Use
from headrace.server.client.writers.step_buffer import StepBuffer
from headrace.server.client.writers.step_memory import StepMemory
from headrace.server.messages.failures import failure_of
from headrace.server.messages.operations import AppendSteps
from headrace.server.messages.writing import OpenWriter, Refused, WriterOpened, WriterState

SIGNATURE = hr.Signature.like({"n": 0})


class Connection:
    """Keeps what is sent, and the calls that are due later."""

    def __init__(self):
        self.sent, self.later = [], []

    shared_nbytes = 0
    packer = None

    def send(self, *messages, payload=b"", descriptors=()):
        self.sent += [message for message in messages if not isinstance(message, OpenWriter)]

    def call_later(self, seconds, call):
        # Only the end of a writer is not gathered.
        assert 0 < seconds < 0.01 or (seconds == 0 and call.__name__ == "_leave")
        self.later.append(call)

    def forget(self, stream):
        pass

    @property
    def steps(self):
        return [message.steps for message in self.sent if isinstance(message, AppendSteps)]


class Writer:
    def __init__(self):
        opening = OpenWriter(writer=0, replay="r", lanes=1, rules=[], history=None, session=b"s" * 16)
        self.stream = OperationStream(SIGNATURE, opening, "tcp://there:1", 1.0)
        self.connection = self.connect()

    def connect(self):
        self.connection = Connection()
        self.stream.attach(self.connection)
        self.stream.take(WriterOpened(writer=0, history=1, is_known=True))
        self.confirm(self.stream.state.sequence)
        return self.connection

    def confirm(self, sequence):
        self.stream.take(
            WriterState(writer=0, sequence=sequence, pending=0, room=1000, finals=0, completes=False)
        )

    def append(self, count=1):
        for n in range(count):
            self.stream.append({"n": np.int64(n)}, 0, Use(steps=1))


@pytest.fixture
def writer():
    return Writer()


def test_steps_gather_behind_the_one_in_flight_and_a_moment_longer(writer):
    writer.append()
    assert writer.connection.steps == [1]
    writer.append(3)
    assert writer.connection.steps == [1]
    writer.confirm(1)
    writer.append(2)
    assert writer.connection.steps == [1]
    [call] = writer.connection.later
    call()
    assert writer.connection.steps == [1, 5]
    call()
    assert writer.connection.steps == [1, 5]


def test_a_step_alone_never_waits(writer):
    for number in range(1, 4):
        writer.append()
        assert writer.connection.steps == [1] * number
        writer.confirm(number)
    assert writer.connection.later == []


@pytest.mark.parametrize("is_refused", [True, False])
@pytest.mark.parametrize("more", [0, 1])
def test_the_lengths_of_episodes_are_those_of_the_steps_that_are_not_refused(writer, is_refused, more):
    """A step whose call has ended before its answer came counts until the server refuses it."""
    stream, connection = writer.stream, writer.connection
    writer.append(2)
    stream.send_collected()
    writer.confirm(2)
    stream.take(WriterState(writer=0, sequence=2, pending=0, room=0, finals=0, completes=False))
    stream._timeout = 0.0
    with pytest.raises(hr.DeadlineExceeded):
        writer.append()
    assert connection.sent[-1].must
    assert stream.lengths.open.tolist() == [3]
    if is_refused:
        stream.take(Refused(writer=0, sequence=3, failure=failure_of(hr.StoreFull("no page"))))
        assert stream.lengths.open.tolist() == [2]
    writer.confirm(3)
    writer.append(more)
    assert stream.lengths.last.tolist() == [3 - is_refused + more]


def test_a_full_message_and_a_request_do_not_wait_for_the_moment(writer):
    writer.append(2)
    writer.confirm(1)
    writer.append(256)
    assert writer.connection.steps == [1, 256]
    writer.confirm(257)
    writer.stream.send_collected()
    assert writer.connection.steps == [1, 256, 1]
    for call in writer.connection.later:
        call()
    assert writer.connection.steps == [1, 256, 1]


@pytest.mark.parametrize(
    ("nbytes", "together"),
    [(84 * 84 * 4, 37), (1 << 20, 1), ((1 << 20) + 1, 1), (1 << 19, 2), (8, 256)],
)
def test_steps_are_sent_together_up_to_one_mebibyte_and_256_steps(nbytes, together):
    buffer = StepBuffer(StepMemory(hr.Signature.like({"frame": np.zeros(nbytes, np.uint8)}), 1, 0))
    steps = np.random.default_rng(0).integers(256, size=(together, nbytes), dtype=np.uint8)
    for step in steps:
        assert not buffer.is_full
        buffer.add({"frame": step}, NO_USE)
    assert buffer.is_full
    data = buffer.packed()
    assert bytes(data) == steps.tobytes()
    OperationLog(1).add(
        AppendSteps(writer=0, sequence=together, steps=together, version=0), data, NO_USE, buffer
    )
    assert (buffer.is_full, buffer.count) == (False, 0)


def test_gathered_steps_are_sent_over_the_next_connection(writer):
    """The call may be lost with the connection."""
    writer.append(3)
    writer.confirm(1)
    writer.stream.lose()
    writer.append()
    connection = writer.connect()
    assert connection.steps[-1] == 3
    assert sum(connection.steps) >= 3
    writer.append()
    assert connection.steps[-1] == 3


def test_a_writer_that_has_ended_sends_nothing_more(writer):
    writer.append(3)
    writer.confirm(1)
    writer.stream.give_up(hr.Closed("over"))
    for call in writer.connection.later:
        call()
    assert writer.connection.steps == [1]


def test_columns_without_values_are_gathered_too():
    signature = hr.Signature.like({"n": 0, "nothing": np.zeros((3, 0))})
    with hr.Replay(signature, [hr.Table.queue("q", 99)]) as replay, hr.Server({"r": replay}) as server:
        with hr.Client(server.address) as client:
            with client.replay("r").writer(lanes=2, items=[hr.ItemRule("q", 1)]) as writer:
                for n in range(20):
                    writer.append({"n": [n, n], "nothing": np.zeros((2, 3, 0))})
                writer.flush(20)
            batch = replay.sample("q", 40, timeout=0)
            assert batch["nothing"].shape == (40, 3, 0)
            assert sorted(batch["n"].tolist()) == sorted([*range(20), *range(20)])


def test_a_client_is_closed_without_a_wait_for_a_writer_that_leaves(writer):
    """server CL6: the thread that receives has not told the server yet; the server would not answer afterwards."""
    writer.append()
    stream = writer.stream
    stream.take(WriterState(writer=0, sequence=1, pending=3, room=9, finals=0, completes=False))
    stream.close()
    stream.wait_until_applied(0.0)
    [call] = writer.connection.later
    call()
    stream.give_up(hr.Closed("the client is closed"))
    assert [type(message).__name__ for message in writer.connection.sent] == ["AppendSteps", "CloseWriter"]
