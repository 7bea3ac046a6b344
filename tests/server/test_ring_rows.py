"""Samples that one compiled call writes into a ring are those that the checked way writes (server AK3, BQ3, CL9)."""

import sys
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_kernels import fewer

from tests.server.ring_samples import EXAMPLES, SAMPLES, needs_compiled, opened, taken


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
