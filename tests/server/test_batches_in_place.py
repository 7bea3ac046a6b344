"""LP4 of queues: the samples of a client of the same machine lie in blocks that the queue hands out as batches."""

import gc
import os
import signal
import time
from contextlib import ExitStack
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.server.adopted_batch import AdoptedBatch
from headrace.server.client.queues.sample_blocks import SampleBlocks
from headrace.server.client.queues.sample_ring import SampleRing
from headrace.server.messages import sample_blocks
from headrace.server.messages.requests import OpenSender, SendSamples
from headrace.server.messages.sample_blocks import BlockLayout
from headrace.server.messages.samples import COUNT_NBYTES, SampleLayout
from headrace.server.serving.client_blocks import ClientBlocks
from headrace.system import memory_file, sealed_memory_file
from headrace.testing import in_forked_child

EXAMPLE = {"n": 0, "x": np.zeros((2, 3), np.float32), "done": False, "empty": np.zeros((0, 2))}
SIGNATURE = hr.Signature.like(EXAMPLE)
BATCH = 3


def until(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.001)


def sample_of(number):
    return {
        "n": number,
        "x": np.full((2, 3), number % 91, np.float32),
        "done": number % 3 == 0,
        "empty": np.zeros((0, 2)),
    }


def numbers_of(batch):
    """Returns the numbers of samples, whose other values must be those of `sample_of`."""
    numbers = batch["n"].tolist()
    for name, leaf in batch.items():
        expected = np.array([sample_of(number)[name] for number in numbers], leaf.dtype)
        np.testing.assert_array_equal(leaf, expected.reshape(leaf.shape))
    return numbers


@pytest.fixture
def small():
    """Samples of all sizes lie in blocks."""
    with mock.patch.multiple(sample_blocks, _LEAST_SAMPLE_NBYTES=1, _LEAST_BLOCK_NBYTES=1):
        yield


@pytest.fixture
def adopted(monkeypatch):
    """A list of the blocks that became batches."""
    found = []
    adopt = ClientBlocks.adopt

    def counting(blocks, block):
        batch = adopt(blocks, block)
        if batch is not None:
            found.append(block)
        return batch

    monkeypatch.setattr(ClientBlocks, "adopt", counting)
    return found


@pytest.fixture
def served(small, tmp_path):
    queue = hr.BatchQueue(EXAMPLE, BATCH, num_buffers=5)
    with hr.Server({"q": queue}, address=None, unix=tmp_path / "s") as server:
        yield queue, server


def send(remote, numbers):
    """Sends samples, each when the one before is stored: then the client knows which one begins a batch."""
    for number in numbers:
        remote.send(sample_of(number), timeout=10)
        remote.wait(10)


def cut(client):
    client._session.link()._channel.shutdown()


# ---- all forms -----------------------------------------------------------------------------------------------------

SCRIPTS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["first", "first", "first", "second", "local"]), st.integers(1, 7)),
        st.tuples(st.just("take"), st.booleans()),
        st.tuples(st.sampled_from(["drop", "cut"]), st.none()),
    ),
    min_size=5,
    max_size=40,
)


@settings(max_examples=8, deadline=None)
@given(SCRIPTS)
def test_batches_are_the_same_in_all_forms(tmp_path_factory, script):
    """BQ5, BQ6, BQ7, LP4, AK3: as payloads, copied from shared memory, and in place."""
    found = []
    for form in ("payload", "copied", "in place"):
        patches = {"_LEAST_SAMPLE_NBYTES": 1, "_LEAST_BLOCK_NBYTES": 1}
        if form == "copied":
            patches["_MOST_BLOCKS"] = 0
        where = {} if form == "payload" else {"address": None, "unix": tmp_path_factory.mktemp("s") / "s"}
        with mock.patch.multiple(sample_blocks, **patches), ExitStack() as stack:
            queue = hr.BatchQueue(EXAMPLE, BATCH, num_buffers=4)
            server = stack.enter_context(hr.Server({"q": queue}, **where))
            clients = {name: stack.enter_context(hr.Client(server.address)) for name in ("first", "second")}
            found.append(run(script, queue, clients))
    assert found[0] == found[1] == found[2]


def run(script, queue, clients):
    """Returns the numbers of the samples of each batch, and of the tail."""
    remotes = {name: client.queue("q") for name, client in clients.items()}
    sent, found, held = 0, [], []
    for what, value in script:
        if what == "take" and sent - BATCH * len(found) >= BATCH:
            batch, info = queue.sample(timeout=10, copy=value)
            found.append(numbers_of(batch))
            assert info.samples_received == sent
            assert batch["n"].flags.writeable == value
            held.append(batch)
            del batch
        elif what == "drop" and held:
            del held[0]
            gc.collect()
        elif what == "cut":
            cut(clients["first"])
        elif what in ("first", "second", "local"):
            # At most as many as there are places: one batch may be lent to the consumer.
            numbers = range(sent, sent + min(value, 3 * BATCH - (sent - BATCH * len(found))))
            sent += len(numbers)
            send(Local(queue) if what == "local" else remotes[what], numbers)
        assert [numbers_of(batch) for batch in held] == found[len(found) - len(held) :]
    queue.close()
    found += [numbers_of(batch) for batch in queue.batches()]
    tail = queue.tail()
    found.append(tail and numbers_of(tail))
    assert sum(map(len, filter(None, found))) == sent
    return found


class Local:
    """A queue of this process with the call that only clients have."""

    def __init__(self, queue):
        self.send = queue.send

    def wait(self, timeout):
        """Samples are in the queue as soon as they are sent."""


# ---- in place ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("copy", [True, False])
def test_a_lone_sender_fills_batches_in_place(served, adopted, copy):
    """BQ6, BQ7: after its first batch, for as long as the consumer drops batches."""
    queue, server = served
    with hr.Client(server.address) as client:
        remote = client.queue("q")
        for first in range(0, 30 * BATCH, BATCH):
            send(remote, range(first, first + BATCH))
            batch, info = queue.sample(timeout=5, copy=copy)
            assert numbers_of(batch) == list(range(first, first + BATCH))
            assert info.buffers_replaced == 0
            del batch
    assert len(adopted) == 29


def test_batches_that_a_consumer_keeps_are_copied_when_no_block_is_free(served, adopted):
    """BQ7: data under a view never changes."""
    queue, server = served
    with hr.Client(server.address) as client:
        remote, kept = client.queue("q"), []
        for first in range(0, 20 * BATCH, BATCH):
            send(remote, range(first, first + BATCH))
            kept.append(queue.sample(timeout=5)[0])
        assert [numbers_of(batch) for batch in kept] == [[n, n + 1, n + 2] for n in range(0, 60, 3)]
        assert sorted(adopted) == list(range(6))
        kept.clear()
        send(remote, range(60, 66))
        assert len(adopted) > 6


def test_an_array_keeps_the_memory_when_client_server_and_queue_are_gone(served):
    """BQ7"""
    queue, server = served
    with hr.Client(server.address) as client:
        send(client.queue("q"), range(9))
    kept = [queue.sample(timeout=5, copy=copy)[0]["x"][:, 1] for copy in (True, False, True)]
    queue.close()
    server.stop()
    del queue
    gc.collect()
    assert [array[:, 0].tolist() for array in kept] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


def test_another_sender_makes_a_batch_a_copy(served, adopted):
    """BQ5, LP5: it takes the next place; its samples never lie in memory of a client."""
    queue, server = served
    with hr.Client(server.address) as client:
        remote = client.queue("q")
        send(remote, range(4))
        assert isinstance(queue._core._pending[-1], AdoptedBatch)
        queue.send(sample_of(4), timeout=0)
        assert not isinstance(queue._core._pending[-1], AdoptedBatch)
        send(remote, range(5, 12))
        assert [numbers_of(queue.sample(timeout=5)[0]) for _ in range(4)] == [
            [n, n + 1, n + 2] for n in range(0, 12, 3)
        ]
        assert len(adopted) == 2


def test_a_new_connection_gets_new_blocks(served):
    """AK3: samples in flight are sent again; batches of the old connection stay as they are."""
    queue, server = served
    with hr.Client(server.address) as client:
        remote = client.queue("q")
        send(remote, range(6))
        for number in range(6, 20):
            remote.send(sample_of(number))
        until(lambda: queue.statistics().blocked_sends)
        kept = [queue.sample(timeout=5)[0] for _ in range(2)]
        cut(client)
        for number in range(20, 30):
            remote.send(sample_of(number), timeout=10)
            if number % BATCH == 2:
                kept.append(queue.sample(timeout=5)[0])
        kept += [queue.sample(timeout=5)[0] for _ in range(10 - len(kept))]
        remote.wait(10)
        assert [numbers_of(batch) for batch in kept] == [[n, n + 1, n + 2] for n in range(0, 30, 3)]


def test_a_forked_child_keeps_its_arrays(served):
    """BQ6: the client does not write under an array of a child."""
    queue, server = served
    with hr.Client(server.address) as client:
        remote = client.queue("q")
        send(remote, range(6))
        queue.sample(timeout=5)
        batch = queue.sample(timeout=5)[0]
        ready, begin = os.pipe(), os.pipe()
        child = os.fork()
        if child == 0:
            os.write(ready[1], b"x")
            os.read(begin[0], 1)
            os._exit(0 if batch["n"].tolist() == [3, 4, 5] else 1)
        os.read(ready[0], 1)
        del batch
        for first in range(6, 60, BATCH):
            send(remote, range(first, first + BATCH))
            assert numbers_of(queue.sample(timeout=5)[0]) == list(range(first, first + BATCH))
        os.write(begin[1], b"x")
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        for descriptor in (*ready, *begin):
            os.close(descriptor)


def test_a_forked_child_gives_no_block_back(served):
    queue, server = served
    with hr.Client(server.address) as client:
        send(client.queue("q"), range(6))
        kept = [queue.sample(timeout=5)[0] for _ in range(2)]

        def drop():
            kept.clear()
            gc.collect()

        in_forked_child(drop)
        blocks = client.queue("q")._stream._blocks
        assert sum(held.get() for held in blocks._is_held) == 1


def test_a_client_that_is_killed_loses_nothing_that_was_confirmed(served, adopted):
    """AK1, LP1: the queue keeps the memory."""
    queue, server = served
    child = os.fork()
    if child == 0:
        try:
            remote = hr.Client(server.address).queue("q")
            send(remote, range(8))
            for column in remote._stream._blocks._columns[1]:
                column[2:] = 99  # In the middle of a sample.
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    until(lambda: not server.statistics().connections)
    assert len(adopted) == 2
    queue.send(sample_of(8), timeout=0)
    assert [numbers_of(queue.sample(timeout=0)[0]) for _ in range(3)] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


# ---- the memory of a client ----------------------------------------------------------------------------------------

STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["quick", "put"]), st.integers(1, 3)),
        st.tuples(st.just("store"), st.integers(1, 9)),
        st.tuples(st.just("next batch"), st.sampled_from([1, -1, 2])),
        st.tuples(st.sampled_from(["hold", "release"]), st.integers(0, 1)),
    ),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(STEPS)
@example([("next batch", 1), ("put", 2), ("next batch", -1), ("put", 1), ("quick", 1)])
def test_a_sample_lies_where_the_message_says_until_it_is_stored(steps):
    """The server may say anything about its batches and blocks."""
    signature = hr.Signature.like(np.int64(0))
    with mock.patch.multiple(sample_blocks, _LEAST_SAMPLE_NBYTES=1, _LEAST_BLOCK_NBYTES=1, _MOST_BLOCKS=2):
        layout = BlockLayout(signature, BATCH)
    ring = SampleRing(signature, SampleLayout(signature), 64, is_shared=False)
    rows, count, stored = ring.rows, ring.count(), 0
    rows.free_until = 1 << 40
    blocks = SampleBlocks(layout, signature, count)
    blocks.close_descriptor()
    for what, value in steps:
        if what == "store":
            stored = min(stored + value, rows.written)
            count.set(stored)
        elif what == "next batch":
            blocks._first_of_batch.set(rows.written + value if value >= 0 else 0)
        elif what in ("hold", "release"):
            blocks._is_held[value].set(what == "hold")
        else:
            for _ in range(value):
                number = rows.written + 1
                if what == "put" or not rows.put(np.int64(number)):
                    rows.quiet_until = 0
                    blocks.place(rows)
                    rows.append([np.int64(number)])
                rows.quiet_until = blocks.next_place(number + 1) or 1 << 40
        for number in range(stored + 1, rows.written + 1):
            found = blocks.values(number)
            [part] = [np.frombuffer(ring.parts(number, 1)[0], np.int64)] if found is None else found
            assert part == number
            length, block, row = blocks.piece(number, rows.written + 1 - number)
            assert [blocks.piece(number + step, 1) for step in range(length)] == [
                (1, block, row + step if block >= 0 else 0) for step in range(length)
            ]


# ---- sizes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("leaves", "batch_size", "count"),
    [
        ({"x": (20, "u1")}, 256, 0),
        ({"x": (28 << 10, "u1")}, 256, 6),
        ({"x": (1 << 20, "u1")}, 8, 6),
        ({"x": (1 << 20, "u1")}, 20, 3),
        ({"x": (1 << 20, "u1")}, 64, 0),
        ({"x": (28 << 10, "u1")}, 2, 0),
        ({"x": (28 << 10, "?")}, 256, 0),
        ({"x": (28 << 10, "u1"), "done": (1, "?")}, 0, 0),
    ],
)
def test_only_large_samples_of_batches_that_fit_lie_in_blocks(leaves, batch_size, count):
    example = {name: np.zeros(size, kind) for name, (size, kind) in leaves.items()}
    layout = BlockLayout(hr.Signature.like(example), batch_size)
    assert layout.count == count
    assert layout.nbytes <= (1 << 16) + (1 << 26)


# ---- hostile clients -----------------------------------------------------------------------------------------------


def files(served_batch=BATCH):
    """Returns memory files as a client of the queue makes them: for samples, and for blocks."""
    layout = SampleLayout(SIGNATURE)
    return (
        sealed_memory_file("test", layout.count_offset(64) + COUNT_NBYTES),
        sealed_memory_file("test", BlockLayout(SIGNATURE, served_batch).nbytes),
    )


def opened(client, descriptors, session=bytes(16)):
    link = client._session.link()
    link.begin(OpenSender(queue="q", session=session), descriptors=descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
    return link


@pytest.mark.parametrize("kind", ["unsealed", "short", "three"])
def test_only_sealed_memory_files_of_the_right_size_are_mapped(served, kind):
    """WI3, LP5"""
    _, server = served
    ring, blocks = files()
    others = {
        "unsealed": (memory_file("test", os.fstat(blocks).st_size),),
        "short": (sealed_memory_file("test", os.fstat(blocks).st_size - 4096),),
        "three": (os.dup(blocks), os.dup(blocks)),
    }[kind]
    os.close(blocks)
    client = hr.Client(server.address)
    opened(client, (ring, *others))
    until(lambda: server.statistics().protocol_errors == 1)
    client._session.abandon()


@settings(max_examples=30, deadline=None)
@given(
    block=st.integers(-1, 7) | st.integers(-(2**63), 2**63 - 1),
    row=st.integers(-1, 4) | st.integers(-(2**63), 2**63 - 1),
    count=st.integers(1, 4),
    with_blocks=st.booleans(),
)
def test_samples_are_read_only_within_the_blocks(tmp_path_factory, block, row, count, with_blocks):
    """WI3, LP5"""
    with mock.patch.multiple(sample_blocks, _LEAST_SAMPLE_NBYTES=1, _LEAST_BLOCK_NBYTES=1):
        queue = hr.BatchQueue(EXAMPLE, BATCH)
        path = tmp_path_factory.mktemp("s") / "s"
        with hr.Server({"q": queue}, address=None, unix=path) as server:
            client = hr.Client(server.address)
            ring, blocks = files()
            if not with_blocks:
                os.close(blocks)
            link = opened(client, (ring, blocks) if with_blocks else (ring,))
            link.begin(SendSamples(queue="q", first=1, count=count, block=block, row=row))
            is_right = block < 0 or (with_blocks and block < 6 and 0 <= row <= row + count <= BATCH)
            if is_right:
                until(lambda: queue.statistics().samples_received == count)
            else:
                until(lambda: server.statistics().protocol_errors == 1)
                assert queue.statistics().samples_received == 0
            client._session.abandon()


def test_bytes_that_are_no_bools_are_true_and_a_block_that_is_held_is_copied(served, adopted):
    """LP5: a client that writes where and when it wants."""
    queue, server = served
    client = hr.Client(server.address)
    remote = client.queue("q")
    send(remote, range(3))
    stream = remote._stream
    done = list(SIGNATURE.columns).index("done")
    stream._blocks._columns[0][done].view(np.uint8)[:] = 7
    numbers = (SendSamples(queue="q", first=4 + BATCH * n, count=BATCH, block=0, row=0) for n in range(2))
    for message in numbers:
        message.number = stream._sender.number
        stream._sender.link.post(message)
    until(lambda: queue.statistics().samples_received == 9)
    queue.sample(timeout=5)
    batches = [queue.sample(timeout=5)[0] for _ in range(2)]
    assert [batch["done"].view(np.uint8).tolist() for batch in batches] == [[1, 1, 1]] * 2
    assert adopted == [0]
    client._session.abandon()
