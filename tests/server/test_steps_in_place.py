"""server LP1 to LP5: clients of one machine write their steps into memory that the server maps."""

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.leases.messages import Goodbye
from headrace.server.addresses import parse_address
from headrace.server.client.connecting import ServerAccess, connect_writers
from headrace.server.client.writers import step_memory
from headrace.server.client.writers.operation_log import OperationLog
from headrace.server.client.writers.operation_use import NO_USE
from headrace.server.client.writers.step_buffer import StepBuffer
from headrace.server.client.writers.step_memory import SharedSteps, StepMemory
from headrace.server.messages.operations import AppendSteps, StepsPlace
from headrace.server.messages.writing import MOST_SHARED_NBYTES, OpenWriter, Refused, WriterState
from headrace.system import memory_file, sealed_memory_file

FRAME = 1024


def until(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


SIGNATURE = hr.Signature.like(
    {"frame": np.zeros(FRAME, np.uint8), "n": np.int64(0), "x": np.float32(0), "done": False}
)


def step_of(n, lanes=1):
    ns = np.arange(lanes) + 10 * n
    step = {
        "frame": np.repeat((ns % 251).astype(np.uint8)[:, None], FRAME, 1),
        "n": ns,
        "x": ns.astype(np.float32) / 4,
        "done": ns % 3 == 0,
    }
    return step if lanes > 1 else {name: column[0] for name, column in step.items()}


def new_replay():
    return hr.Replay(SIGNATURE, [hr.Table.queue("t", 10_000)], capacity=20_000)


def contents(replay):
    """All items, in their order."""
    count = len(replay.table("t"))
    batch = replay.sample("t", count, timeout=5) if count else None
    return [] if batch is None else [column.tolist() for column in SIGNATURE.flatten(batch.data).values()]


# ---- the memory of a client ----------------------------------------------------------------------------------------


def taken(buffer):
    """The steps of a buffer, which go into an operation."""
    steps, count = buffer.packed(), buffer.count
    operation = AppendSteps(writer=0, sequence=count, steps=count, version=0)
    OperationLog(1).add(operation, steps, NO_USE, buffer)
    return steps


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3)), max_size=30))
def test_blocks_are_used_again_only_when_no_steps_refer_to_them(script):
    signature = hr.Signature.like({"a": np.int64(0), "b": np.int8(0)})
    with mock.patch.multiple(step_memory, _LEAST_SHARED_NBYTES=1, _MOST_STEPS=4):
        memory = StepMemory(signature, lanes=1, shared_nbytes=4 * 4 * 9)
        assert memory.shared_nbytes == 4 * 4 * 9
        buffer, kept, number = StepBuffer(memory), [], 0
        for count, drop in script:
            expected = []
            for _ in range(count):
                if buffer.is_full:
                    kept.append((taken(buffer), expected))
                    expected = []
                buffer.add({"a": number, "b": number % 100}, NO_USE)
                expected.append(number)
                number += 1
            kept.append((taken(buffer), expected))
            del kept[:drop]
            for steps, numbers in kept:
                data = steps.packed() if isinstance(steps, SharedSteps) else bytes(steps)
                assert len(data) == len(steps) == 9 * len(numbers)
                assert np.frombuffer(data, "<i8", len(numbers)).tolist() == numbers
        steps = None
        kept.clear()
        del buffer
        assert len(memory._free) == 4
        memory.close()
        memory.close()


@pytest.mark.parametrize(
    ("nbytes", "lanes", "blocks"), [(8, 1, 0), (84 * 84 * 4, 1, 64), (84 * 84 * 4, 64, 37), (1 << 25, 1, 0)]
)
def test_only_large_steps_are_shared_and_no_more_than_the_bound(nbytes, lanes, blocks):
    memory = StepMemory(hr.Signature.like(np.zeros(nbytes, np.uint8)), lanes, MOST_SHARED_NBYTES)
    assert len(memory._free) == blocks
    assert memory.shared_nbytes <= MOST_SHARED_NBYTES
    assert bool(memory.descriptors) == bool(blocks)


# ---- both forms ----------------------------------------------------------------------------------------------------

SCRIPTS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 12)),
        st.tuples(st.just("end"), st.booleans()),
        st.tuples(st.just("append and end"), st.integers(1, 7)),
        st.tuples(st.just("version"), st.integers(0, 3)),
        st.tuples(st.just("priorities"), st.floats(0, 9)),
        st.tuples(st.just("flush"), st.none()),
    ),
    max_size=12,
)


@settings(max_examples=20, deadline=None)
@given(SCRIPTS, st.sampled_from([1, 3]))
def test_steps_in_place_are_stored_as_those_of_payloads_and_of_this_process(tmp_path_factory, script, lanes):
    """LP4: nothing but speed differs."""
    path = tmp_path_factory.mktemp("in-place") / "s"
    rule = hr.ItemRule("t", 2)
    found = []
    for way in ("in process", "tcp", "unix"):
        where = {"address": None, "unix": path} if way == "unix" else {}
        with ExitStack() as stack:
            stack.enter_context(mock.patch.object(step_memory, "_MOST_STEPS", 8))
            stack.enter_context(mock.patch.object(step_memory, "_LEAST_SHARED_NBYTES", 1))
            replay = stack.enter_context(new_replay())
            written = replay
            if way != "in process":
                server = stack.enter_context(hr.Server({"r": replay}, **where))
                written = stack.enter_context(hr.Client(server.address)).replay("r")
            writer = written.row_writer(lanes=lanes, items=[rule])
            if way == "unix":
                assert writer._stream._memory.shared_nbytes
            write(writer, script, lanes)
            writer.flush(10)
            found.append((contents(replay), writer.pending))
            writer.close()
    assert found[0] == found[1] == found[2]


def write(writer, script, lanes):
    number, is_open = 0, np.zeros(lanes, np.bool_)
    for what, value in script:
        if what == "append":
            for _ in range(value):
                writer.append(step_of(number, lanes))
                number += 1
            is_open[:] = True
        elif what == "end" and is_open.any():
            ended = np.flatnonzero(is_open)
            writer.end_lanes(ended, columns_of(number, lanes, ended) if value else None)
            number += 1
            is_open[:] = False
        elif what == "append and end":
            ended = np.flatnonzero([value >> lane & 1 for lane in range(lanes)])
            finals = columns_of(number + 1, lanes, ended)
            writer.append_ends(
                columns_of(number, lanes, np.arange(lanes)), np.zeros(lanes, np.bool_), ended, finals
            )
            number += 2
            is_open[:] = True
            is_open[ended] = False
        elif what == "version":
            writer.policy_version = value
        elif what == "priorities":
            writer.give_priorities({0: np.full(lanes, value)})
            writer.append(step_of(number, lanes))
            number += 1
            is_open[:] = True
        elif what == "flush":
            writer.flush(10)


def columns_of(number, lanes, chosen):
    """A step of some lanes, with an axis of lanes in any case."""
    return {
        name: np.reshape(column, (lanes, *SIGNATURE.columns[name].shape))[chosen]
        for name, column in step_of(number, lanes).items()
    }


def test_no_large_step_travels_through_the_socket(served):
    """LP4: alone, gathered, with priorities, and with ends."""
    replay, server = served
    lanes, steps = 64, 30
    with hr.Client(server.address) as client:
        writer = client.replay("r").row_writer(lanes=lanes, items=[hr.ItemRule("t", 1)])
        before = server.statistics().bytes_in
        for n in range(steps):
            writer.append(step_of(n, lanes))
            writer.give_priorities({0: np.ones(lanes)})
            writer.append(step_of(n, lanes))
            none = np.empty(0, np.int64)
            step = columns_of(n, lanes, np.arange(lanes))
            writer.append_ends(step, np.zeros(lanes, np.bool_), none, {"n": none})
        writer.flush(10)
        assert len(replay.table("t")) == 3 * steps * lanes
        assert server.statistics().bytes_in - before < 3 * steps * lanes * SIGNATURE.nbytes // 20
        writer.close()


# ---- clients that end, and clients that write where they want --------------------------------------------------------


@pytest.fixture
def served(tmp_path):
    with new_replay() as replay, hr.Server({"r": replay}, address=None, unix=tmp_path / "s") as server:
        yield replay, server


CHILD = """
import sys
import numpy as np
import headrace as hr
with hr.Client(sys.argv[1]) as client:
    with client.replay("r").writer(items=[hr.ItemRule("t", 2)]) as writer:
        assert writer._rows._stream._memory.shared_nbytes
        n = 0
        while True:
            writer.append({"frame": np.full(1024, n % 251, np.uint8), "n": n, "x": n / 4, "done": n % 3 == 0})
            n += 1
            if n == 500:
                print("writes", flush=True)
"""


def test_a_client_that_is_killed_leaves_whole_items_and_no_pages(served):
    """LP1, LP2: kill -9 in the middle of a page."""
    replay, server = served
    child = subprocess.Popen([sys.executable, "-c", CHILD, server.address], stdout=subprocess.PIPE)
    with child, hr.Client(server.address) as client:
        writer = client.replay("r").row_writer(items=[])
        writer.append(step_of(3))
        assert child.stdout.readline() == b"writes\n"
        until(lambda: len(replay.table("t")))  # Its first steps may still be on their way.
        os.kill(child.pid, signal.SIGKILL)
        child.wait(10)
        writer.close()
    until(lambda: server.statistics().connections == 0)
    count = len(replay.table("t"))
    batch = replay.sample("t", count, timeout=5).data
    first = batch["n"][:, 0]
    assert first.tolist() == list(range(count))
    assert (batch["n"][:, 1] == first + 1).all()
    assert (batch["frame"] == (batch["n"] % 251)[..., None]).all()
    until(lambda: replay.statistics().store.rows <= count + 1 + 1024 * 1024 // FRAME)


def test_the_server_keeps_what_it_has_stored_whatever_the_client_writes_then(served):
    """LP5: rows are copied out of the client's memory before they are part of the store."""
    replay, server = served
    with hr.Client(server.address) as client:
        writer = client.replay("r").row_writer(items=[hr.ItemRule("t", 1)])
        for n in range(1500):
            writer.append(step_of(n))
        writer.flush(10)
        writer._stream._memory._memory[...] = 255
        batch = replay.sample("t", 1500, timeout=5).data
        assert batch["n"].tolist() == list(range(0, 15_000, 10))
        assert (batch["frame"] == (batch["n"] % 251)[:, None]).all()
        writer.close()


def opened(server, descriptors, **fields):
    """Opens a writer as any peer can; returns the connection."""
    channel = connect_writers(server).channel
    opening = OpenWriter(writer=0, replay="r", lanes=1, rules=[], history=None, session=b"s" * 16, **fields)
    channel.send(opening, descriptors=descriptors)
    return channel


def goodbye(channel):
    """Returns the reason with which the server ends a connection."""
    while not isinstance(message := channel.receive().message, Goodbye):
        pass
    channel.close()
    return message.reason


def access(server):
    return ServerAccess(parse_address(server.address), None, None, 5.0)


@pytest.mark.parametrize(
    "kind", ["no descriptor", "unsealed", "short", "too large", "negative", "two descriptors", "a file"]
)
def test_only_one_sealed_memory_file_of_the_right_size_is_mapped(served, tmp_path, kind):
    """WI3, LP5: another one could be cut under the server's hands."""
    _, server = served
    nbytes = 1 << 16
    made = {
        "no descriptor": (),
        "unsealed": (memory_file("test", nbytes),),
        "short": (sealed_memory_file("test", nbytes // 2),),
        "too large": (sealed_memory_file("test", nbytes),),
        "negative": (sealed_memory_file("test", nbytes),),
        "two descriptors": (sealed_memory_file("test", nbytes), sealed_memory_file("test", nbytes)),
        "a file": (os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT),),
    }
    shared = {"too large": MOST_SHARED_NBYTES + 1, "negative": -1}.get(kind, nbytes)
    channel = opened(access(server), made[kind], shared_nbytes=shared)
    reason = goodbye(channel)
    assert "sealed" in reason or "one descriptor" in reason
    for descriptors in made.values():
        for each in descriptors:
            os.close(each)


def test_over_tcp_no_memory_is_shared():
    with new_replay() as replay, hr.Server({"r": replay}) as server:
        channel = opened(access(server), (), shared_nbytes=4096)
        assert "over a Unix socket only" in goodbye(channel)


@settings(max_examples=40, deadline=None)
@given(
    offset=st.integers(-2, 6000) | st.integers(-(2**63), 2**63 - 1),
    capacity=st.integers(-2, 6) | st.integers(-(2**63), 2**63 - 1),
    first=st.integers(-2, 6) | st.integers(-(2**63), 2**63 - 1),
    steps=st.integers(-1, 3) | st.integers(-(2**63), 2**63 - 1),
)
def test_steps_are_read_only_within_the_memory_of_their_writer(
    tmp_path_factory, offset, capacity, first, steps
):
    """WI3, LP5"""
    row = SIGNATURE.nbytes
    nbytes = 4 * row
    with new_replay() as replay:
        with hr.Server({"r": replay}, address=None, unix=tmp_path_factory.mktemp("p") / "s") as server:
            descriptor = sealed_memory_file("test", nbytes)
            channel = opened(access(server), (descriptor,), shared_nbytes=nbytes)
            os.close(descriptor)
            place = StepsPlace(offset, capacity, first)
            channel.send(
                AppendSteps(writer=0, sequence=max(steps, 1), must=True, steps=steps, version=0, place=place)
            )
            is_within = (
                0 <= offset <= offset + capacity * row <= nbytes and 0 <= first <= first + steps <= capacity
            )
            answer = None
            while answer is None:
                message = channel.receive().message
                if isinstance(message, Refused):
                    answer = False
                elif isinstance(message, WriterState) and message.sequence:
                    answer = True
            assert answer == (is_within and steps >= 1)
            channel.close()
