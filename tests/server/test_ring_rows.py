"""Samples that one compiled call writes into a ring are those that the checked way writes (server AK3, BQ3, CL9)."""

import sys
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from plain_kernels import fewer

import headrace as hr
from headrace.errors import SpecError
from headrace.kernels import shared_count
from headrace.server.client.queues.sample_ring import SampleRing
from headrace.server.messages.samples import SampleLayout
from headrace.spec import ArraySpec
from headrace.trajectories.columns.leaf_reader import LeafCheck, checked_reader
from headrace.trees import compile_tree

needs_compiled = pytest.mark.skipif(
    shared_count.__file__.endswith(".py"), reason="plain kernels write every sample the checked way"
)
EXAMPLES = [
    np.zeros(3, np.int16),
    0.0,
    {"observation": np.zeros((2, 2), np.float32), "reward": np.float32(0), "done": False},
    (np.zeros(2, np.uint8), {"a": 0, "b": [np.float16(0), np.complex64(0)]}),
    {"empty": np.zeros((0, 4)), "a": np.int8(0)},
]
ODD = st.one_of(
    st.booleans(),
    st.integers(-(2**64), 2**64),
    st.floats(),
    st.sampled_from(["text", None, [1, 2, 3]]),
    hnp.arrays(
        st.sampled_from([np.int16, np.float32, np.float64, np.uint8, np.bool_, np.dtype(">i2")]),
        st.sampled_from([(), (1,), (2,), (3,), (2, 2), (0, 4)]),
    ).map(np.transpose),
)


def like(example):
    """Trees like an example, some with leaves of other kinds and some of another structure."""
    if isinstance(example, dict):
        exact = st.fixed_dictionaries({name: like(value) for name, value in example.items()})
        return st.one_of(exact, exact, exact, exact.map(lambda found: {**found, "more": 0}), ODD)
    if isinstance(example, tuple | list):
        return st.tuples(*map(like, example)).map(type(example))
    array = np.asarray(example)
    exact = hnp.arrays(array.dtype, array.shape)
    return st.one_of(exact, exact, exact.map(lambda found: found[()]), ODD)


SAMPLES = [st.lists(like(example), max_size=3) for example in EXAMPLES]


def opened(example):
    """A ring that takes samples at once, and the checked reader of samples."""
    signature = hr.Signature.like(example)
    ring = SampleRing(signature, SampleLayout(signature), 64, is_shared=False)
    ring.rows.free_until, ring.rows.quiet_until = ring.places, 1 << 40
    node = compile_tree(signature.tree, lambda node: isinstance(node, ArraySpec))
    checks = [LeafCheck(path, spec) for path, spec in signature.columns.items()]
    return ring, checked_reader(node, checks)


def taken(call):
    try:
        return call()
    except SpecError as error:
        return str(error)


@settings(max_examples=fewer(200))
@given(st.data())
def test_both_ways_take_the_same_samples(data):
    """A sample that the checked way refuses is in no way written, and one that is written has the same bytes."""
    example, samples = data.draw(st.sampled_from([*zip(EXAMPLES, SAMPLES, strict=True)]))
    quick, read = opened(example)
    checked, _ = opened(example)
    for sample in data.draw(samples):
        before = quick.rows.written
        is_written = taken(lambda sample=sample: quick.rows.put(sample))
        values = taken(lambda sample=sample: read(sample))
        if isinstance(values, str):
            assert is_written is False or is_written == values
            assert quick.rows.written == before
            continue
        checked.rows.append(values)
        if is_written is not True:
            assert is_written is False
            quick.rows.append(values)
        assert quick.rows.written == checked.rows.written == before + 1
        assert bytes(quick.parts(before + 1, 1)[0]) == bytes(checked.parts(before + 1, 1)[0])


@needs_compiled
@pytest.mark.parametrize("example", EXAMPLES)
def test_samples_like_the_example_are_written_at_once(example):
    assert opened(example)[0].rows.put(example) is True


@needs_compiled
@pytest.mark.parametrize(("free_until", "quiet_until", "written"), [(5, 9, 5), (9, 5, 4), (9, 0, 0)])
def test_samples_are_written_as_far_as_there_are_places_and_nothing_else_is_to_do(
    free_until, quiet_until, written
):
    rows = opened(0)[0].rows
    rows.free_until, rows.quiet_until = free_until, quiet_until
    assert [rows.put(number) for number in range(8)] == [True] * written + [False] * (8 - written)
    assert rows.written == written


@needs_compiled
def test_threads_take_different_places():
    ring, _ = opened((np.zeros(40, np.int64), 0))
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    found = []

    def write(first):
        values = [(np.full(40, number), number) for number in range(first, first + 20)]
        found.extend([number for _, number in values if ring.rows.put((np.full(40, number), number))])

    try:
        threads = [threading.Thread(target=write, args=(100 * index,)) for index in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
    finally:
        sys.setswitchinterval(interval)
    rows = np.frombuffer(ring.parts(1, 60)[0], np.int64).reshape(60, 41)
    assert (rows == rows[:, :1]).all()
    assert sorted(rows[:, 0]) == sorted(found) == [100 * i + n for i in range(3) for n in range(20)]


def test_a_forked_child_writes_no_sample_into_the_memory_of_its_parent():
    """CL9"""
    ring, _ = opened(0)
    ring.after_fork_in_child()
    assert ring.rows.put(1) is False


def test_large_samples_are_written_with_the_lock():
    """Their copies let other threads run."""
    assert opened(np.zeros(1 << 16, np.uint8))[0].may_be_quiet == opened(0)[0].may_be_quiet
    assert not opened(np.zeros((1 << 16) + 1, np.uint8))[0].may_be_quiet
