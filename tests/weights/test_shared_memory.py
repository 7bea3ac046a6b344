"""Weights in shared memory (collectors CW1, CW3, CW7)."""

import gc
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections import OrderedDict

import numpy as np
import pytest

from headrace.errors import Closed, DeadlineExceeded, SpecError
from headrace.weights import NoSync, SharedMemory, SharedMemoryReceiver, WeightReceiver, WeightScheme


def weights(value):
    return {
        "b/haiku": [np.full((3, 2), value, np.float32), (np.full(5, value, np.int64), None)],
        "a": {"scalar": np.float64(value), 7: np.zeros((0, 3), bool)},
    }


def assert_weights(got, value):
    expected = weights(value)
    np.testing.assert_array_equal(got["b/haiku"][0], expected["b/haiku"][0])
    np.testing.assert_array_equal(got["b/haiku"][1][0], expected["b/haiku"][1][0])
    assert got["b/haiku"][1][1] is None
    assert got["a"]["scalar"] == value
    assert got["a"][7].shape == (0, 3)


@pytest.fixture
def scheme():
    with SharedMemory(weights(0)) as scheme:
        yield scheme


def test_both_ends_have_the_interface(scheme):
    """CW7: publish, version, receiver, close; version, read."""
    assert isinstance(scheme, WeightScheme)
    assert isinstance(scheme.receiver(), WeightReceiver)
    assert isinstance(NoSync(), WeightScheme)
    assert isinstance(NoSync(), WeightReceiver)


def test_publish_and_read(scheme):
    """CW7, CV1: version 0 at the start, one more with each publication; the newest set is read."""
    receiver = scheme.receiver()
    assert (scheme.version, receiver.version) == (0, 0)
    assert_weights(receiver.read()[1], 0)
    for version in range(1, 6):
        assert scheme.publish(weights(version)) == version
        assert (scheme.version, receiver.version) == (version, version)
        got_version, got = receiver.read()
        assert got_version == version
        assert_weights(got, version)
    scheme.publish(weights(6))
    scheme.publish(weights(7))
    assert receiver.read()[0] == 7
    receiver.close()


def test_the_learner_may_change_its_arrays_at_once(scheme):
    """CW3: returning means published."""
    mine = weights(3)
    scheme.publish(mine)
    mine["b/haiku"][0][...] = -1
    receiver = scheme.receiver()
    assert_weights(receiver.read()[1], 3)


def test_what_was_read_is_the_readers_own(scheme):
    """CW3: later publications change nothing that was read."""
    receiver = scheme.receiver()
    scheme.publish(weights(1))
    _, kept = receiver.read()
    for version in (2, 3, 4):
        scheme.publish(weights(version))
    assert_weights(kept, 1)
    kept["b/haiku"][0][...] = 0
    assert_weights(receiver.read()[1], 4)


def test_numbers_from_the_caller(scheme):
    """CV1, CV5: a collector gives its own numbers; they only grow."""
    receiver = scheme.receiver()
    assert scheme.publish(weights(1), version=5) == 5
    assert receiver.read()[0] == 5
    assert scheme.publish(weights(2)) == 6
    with pytest.raises(ValueError, match="version: expected more than 6"):
        scheme.publish(weights(3), version=6)
    assert_weights(receiver.read()[1], 2)


def replaced(change):
    new = weights(9)
    change(new)
    return new


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda w: w["b/haiku"].__setitem__(0, np.zeros((2, 3), np.float32)),
            r"b/haiku/0: expected float32\[3, 2\], got .*\[2, 3\]",
        ),
        (
            lambda w: w["b/haiku"].__setitem__(0, np.zeros((3, 2))),
            r"b/haiku/0: expected float32\[3, 2\], got float64",
        ),
        (lambda w: w["a"].pop("scalar"), "missing a/scalar"),
        (lambda w: w["a"].update(more=np.zeros(1)), "extra a/more"),
        (lambda w: w["a"].update(scalar="text"), "a/scalar: expected an array of numbers, got str"),
        (lambda w: w["a"].update(scalar=[]), "missing a/scalar"),
        (lambda w: w["a"].update(scalar=np.array([object()])), "a/scalar: expected an array"),
    ],
)
def test_weights_that_differ(scheme, change, message):
    """CW1: SpecError with the path; nothing is changed, no version used."""
    receiver = scheme.receiver()
    scheme.publish(weights(1))
    with pytest.raises(SpecError, match=message):
        scheme.publish(replaced(change))
    assert (scheme.version, receiver.version) == (1, 1)
    assert_weights(receiver.read()[1], 1)
    assert scheme.publish(weights(2)) == 2


def test_weights_that_are_no_arrays():
    """CW7: a pytree of arrays, else SpecError with the path."""
    with pytest.raises(SpecError, match="layer/w: expected an array of numbers, got set"):
        SharedMemory({"layer": {"w": {1, 2}}})


def test_another_dict_class_with_the_same_names():
    """CW1: names, shapes and dtypes decide, not the class of dict or the order of its keys."""
    with SharedMemory(OrderedDict(b=np.zeros(2), a=np.ones(2))) as scheme:
        scheme.publish({"a": np.full(2, 2.0), "b": np.full(2, 3.0)})
        receiver = scheme.receiver()
        _, got = receiver.read()
        assert isinstance(got, OrderedDict)
        assert (got["a"].tolist(), got["b"].tolist()) == ([2, 2], [3, 3])


def test_empty_weights():
    """A policy without parameters has versions all the same."""
    with SharedMemory({}) as scheme:
        scheme.publish({})
        assert scheme.receiver().read() == (1, {})


def test_closing(scheme):
    """CW7: after close the publishing end raises Closed; receivers still read the last set."""
    receiver = scheme.receiver()
    scheme.publish(weights(4))
    scheme.close()
    scheme.close()
    with pytest.raises(Closed):
        scheme.publish(weights(5))
    with pytest.raises(Closed):
        scheme.receiver()
    assert_weights(receiver.read()[1], 4)
    receiver.close()
    receiver.close()
    for ask in (receiver.read, lambda: receiver.version, lambda: pickle.dumps(receiver)):
        with pytest.raises(Closed):
            ask()


def test_nothing_is_left(named_memory):
    """CQ7: no descriptor, and nothing named in /dev/shm."""
    gc.collect()
    before, named = set(os.listdir("/proc/self/fd")), named_memory()
    with SharedMemory(weights(0)) as scheme:
        receiver = scheme.receiver()
        assert named_memory() == named
        assert len(os.listdir("/proc/self/fd")) > len(before)
    receiver.close()
    forgotten = SharedMemory(weights(0))
    del forgotten
    gc.collect()
    assert set(os.listdir("/proc/self/fd")) == before


def test_a_receiver_cannot_change_the_memory(scheme):
    """A reader's fault stays its own."""
    receiver = scheme.receiver()
    assert receiver._board.words.readonly
    assert not any(array.flags.writeable for slot in (0, 1) for array in receiver._board.slot(slot))


@pytest.mark.skipif(sys.platform != "linux", reason="a Linux whose Python lacks a name")
def test_without_memory_files(monkeypatch):
    """CW7: where the OS lacks memfd_create a file without a name does the same."""
    monkeypatch.delattr(os, "memfd_create")
    with SharedMemory(weights(0)) as scheme:
        receiver = scheme.receiver()
        scheme.publish(weights(2))
        assert_weights(receiver.read()[1], 2)
        receiver.close()


def _echo(receiver, connection):
    for _ in iter(connection.recv, None):
        version, got = receiver.read()
        connection.send((receiver.version, version, got))
    receiver.close()


def test_a_receiver_in_a_spawned_process(scheme):
    """CW7: picklable to a process that is started by spawn; it sees what is published later."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_echo, args=(scheme.receiver(), there))
    process.start()
    there.close()
    for version in (1, 2, 3):
        scheme.publish(weights(version))
        here.send("read")
        seen, read, got = here.recv()
        assert (seen, read) == (version, version)
        assert_weights(got, version)
    here.send(None)
    process.join()
    assert process.exitcode == 0
    here.close()


CHILD = """
import pickle, sys
receiver = pickle.load(sys.stdin.buffer)
print(receiver.version, receiver.read()[1]["a"]["scalar"])
"""


def test_a_receiver_through_plain_pickle(scheme):
    """CW7: also to a process that is none of multiprocessing's."""
    scheme.publish(weights(3))
    receiver = scheme.receiver()
    child = subprocess.run(
        [sys.executable, "-c", CHILD], input=pickle.dumps(receiver), capture_output=True, check=True
    )
    assert child.stdout.split() == [b"1", b"3.0"]
    copy = pickle.loads(pickle.dumps(receiver))
    receiver.close()
    assert copy.read()[0] == 1


def test_a_pickle_of_memory_that_is_gone(scheme):
    """A late pickle is refused, never another file's bytes."""
    receiver = scheme.receiver()
    data = pickle.dumps(receiver)
    descriptor = receiver.descriptor
    receiver.close()
    with pytest.raises(OSError, match="expected to open the memory"):
        pickle.loads(data)
    other = os.memfd_create("other")
    os.dup2(other, descriptor)
    try:
        with pytest.raises(OSError, match="has closed the memory"):
            pickle.loads(data)
    finally:
        for opened in {other, descriptor}:
            os.close(opened)


def test_from_a_descriptor(scheme):
    """CW7: for processes that get the descriptor over a socket."""
    receiver = scheme.receiver()
    other = SharedMemoryReceiver.from_fd(
        os.dup(receiver.descriptor), pickle.loads(pickle.dumps(receiver.layout))
    )
    scheme.publish(weights(2))
    assert_weights(other.read()[1], 2)
    other.close()


SIZE = 2000


def _read_for_ever(receiver, connection):
    connection.send("ready")
    while True:
        receiver.read()


def test_a_reader_that_dies_holds_nothing():
    """CW7: a reader is killed while it reads; publishing and other readers go on."""
    context = multiprocessing.get_context("spawn")
    with SharedMemory({"w": np.zeros(SIZE)}) as scheme:
        here, there = context.Pipe()
        process = context.Process(target=_read_for_ever, args=(scheme.receiver(), there))
        process.start()
        there.close()
        assert here.recv() == "ready"
        for k in range(100):
            scheme.publish({"w": np.full(SIZE, float(k))})
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        here.close()
        assert scheme.publish({"w": np.full(SIZE, -1.0)}) == 101
        receiver = scheme.receiver()
        version, got = receiver.read()
        assert (version, set(got["w"].tolist())) == (101, {-1})


def _publish_for_ever(connection):
    scheme = SharedMemory({"w": np.zeros(1 << 20)})
    receiver = scheme.receiver()
    # The descriptor goes through this process, which is alive while the other end opens it.
    connection.send_bytes(pickle.dumps(receiver))
    connection.recv()
    k = 0
    while True:
        k += 1
        scheme.publish({"w": np.full(1 << 20, float(k))})


def test_a_publisher_that_dies_leaves_the_last_set():
    """CW7: a publisher is killed while it writes; the last complete set stays readable."""
    context = multiprocessing.get_context("spawn")
    for _ in range(2):
        here, there = context.Pipe()
        process = context.Process(target=_publish_for_ever, args=(there,))
        process.start()
        there.close()
        receiver = pickle.loads(here.recv_bytes())
        here.send("opened")
        while receiver.version < 5:
            pass
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        here.close()
        version, got = receiver.read()
        assert version >= 5
        assert set(np.unique(got["w"]).tolist()) == {float(version)}
        receiver.close()


def overtake(scheme):
    """Leave the memory as it looks to a reader whom the publisher has overtaken."""
    board = scheme._board
    for slot in range(board.shape.slots):
        board.words[board.shape.stamp(slot)] = 0


def test_a_reader_that_is_always_overtaken(scheme, monkeypatch):
    """CW7: a publisher that is two sets ahead whenever a copy is complete; reading ends, and says why."""
    monkeypatch.setattr("headrace.weights.shared_memory._READ_SECONDS", 0.02)
    receiver = scheme.receiver()
    scheme.publish(weights(4))
    overtake(scheme)
    assert receiver.try_read() is None
    with pytest.raises(DeadlineExceeded, match=r"0.02 s .* replaced .* last one was 1: publish less often"):
        receiver.read()
    scheme.publish(weights(5))
    assert receiver.try_read()[0] == receiver.read()[0] == 2


def _check_patterns(receiver, last, connection):
    reads, previous = 0, -1
    connection.send("ready")
    while previous < last:
        seen = receiver.version
        version, got = receiver.read()
        # Each array is full of the version in its first place and counts up from it: a mixture of two sets shows.
        for name, array in got.items():
            if not np.array_equal(array, version + np.arange(array.size)):
                connection.send(f"torn: {name} of version {version}")
                return
        if version < max(seen, previous):
            connection.send(f"went back: {version} after {seen}, {previous}")
            return
        reads, previous = reads + 1, version
    connection.send(reads)


def pattern(version):
    return {"small": version + np.arange(3), "large": version + np.arange(3000)}


def test_no_set_is_torn():
    """CW7, section 16: readers in another process and in a thread, 2e4 publications, no torn set, never backwards."""
    publications = 20_000
    context = multiprocessing.get_context("spawn")
    with SharedMemory(pattern(0)) as scheme:
        ends = [context.Pipe() for _ in range(2)]
        receivers = [scheme.receiver() for _ in range(2)]
        process = context.Process(target=_check_patterns, args=(receivers[0], publications, ends[0][1]))
        thread = threading.Thread(target=_check_patterns, args=(receivers[1], publications, ends[1][1]))
        process.start()
        thread.start()
        assert [end[0].recv() for end in ends] == ["ready", "ready"]
        for version in range(1, publications + 1):
            scheme.publish(pattern(version))
        results = [end[0].recv() for end in ends]
        process.join()
        thread.join()
        assert all(isinstance(result, int) and result > 0 for result in results), results
        for end in (*ends[0], *ends[1], *receivers):
            end.close()


def test_publishing_from_many_threads(scheme):
    """CW3: from any thread; each publication has a number of its own."""
    versions = []

    def publish():
        versions.extend(scheme.publish(weights(1)) for _ in range(50))

    threads = [threading.Thread(target=publish) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(versions) == list(range(1, 201))
    assert_weights(scheme.receiver().read()[1], 1)


def test_no_sync():
    """CW7: publishes nothing, receives nothing."""
    scheme = NoSync()
    assert scheme.publish({"w": 1}) == scheme.version == 0
    receiver = pickle.loads(pickle.dumps(scheme.receiver()))
    assert receiver.read() == (0, None)
    receiver.close()
    scheme.close()
