"""Sets of weights for several readers apart (collectors CW2, CW3, CW7)."""

import os
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.weights import board as module
from headrace.weights.board import NO_SLOT, BoardReader, WeightBoard
from headrace.weights.layout import WeightLayout

LAYOUT = WeightLayout({"a": np.zeros(3), "b": np.zeros(2, np.int32)})


@contextmanager
def opened(addresses=1):
    board = WeightBoard(LAYOUT, addresses)
    readers = [
        BoardReader(os.dup(board.descriptor), LAYOUT, address, addresses) for address in range(addresses)
    ]
    try:
        yield board, readers
    finally:
        for end in (board, *readers):
            end.close()


def arrays(value):
    return [np.full(3, float(value)), np.full(2, value, np.int32)]


def shown(reader):
    """Number and values that a reader sees; None: no set."""
    newest = reader.newest()
    assert newest.number == reader.number
    if newest.slot == NO_SLOT:
        return newest.number, None
    values = [set(array.tolist()) for array in reader.copy(newest)]
    assert all(len(value) == 1 for value in values)
    return newest.number, [int(value.pop()) for value in values]


operations = st.lists(
    st.one_of(
        st.tuples(
            st.just("publish"),
            st.sampled_from([(True, True), (True, False), (False, True)]),
            st.one_of(st.none(), st.sets(st.integers(0, 2), min_size=1)),
        ),
        st.tuples(st.just("renumber")),
    ),
    max_size=12,
)


@given(operations)
@settings(max_examples=200, deadline=None)
def test_against_a_plain_model(operations):
    """CW2: a set for some readers changes those alone; arrays that are not given stay as each reader has them."""
    model = [(0, None)] * 3
    with opened(3) as (board, readers):
        for number, operation in enumerate(operations, start=1):
            before = [reader.sequence for reader in readers]
            if operation[0] == "renumber":
                board.renumber(number)
                targets, model = range(3), [(number, values) for _, values in model]
            else:
                _, given_arrays, targets = operation
                values = arrays(number)
                board.publish(
                    [
                        array if is_given else None
                        for array, is_given in zip(values, given_arrays, strict=True)
                    ],
                    number,
                    targets,
                )
                targets = range(3) if targets is None else targets
                for address in targets:
                    old = model[address][1] or [0, 0]
                    new = [
                        number if is_given else kept for is_given, kept in zip(given_arrays, old, strict=True)
                    ]
                    model[address] = (number, new)
            for address, reader in enumerate(readers):
                assert shown(reader) == model[address]
                assert board.newest(address) == reader.newest()
                assert (reader.sequence != before[address]) == (address in targets)


class Killed(BaseException):
    """Stands for the death of the publisher."""


@pytest.mark.parametrize("dies_at", range(1, 13))
def test_a_publisher_that_dies_between_two_writes(dies_at, monkeypatch):
    """CW7: whatever was written before, each reader finds a complete set, the old or the new one."""
    fence, passed = module.memory_fence, []

    def stop():
        fence()
        passed.append(1)
        if len(passed) == dies_at:
            raise Killed

    with opened(2) as (board, readers):
        board.publish(arrays(1), 1)
        monkeypatch.setattr(module, "memory_fence", stop)
        try:
            board.publish(arrays(2), 2)
        except Killed:
            assert dies_at <= 11  # Three for the set, and four for each reader.
        else:
            assert dies_at > 11
        monkeypatch.setattr(module, "memory_fence", fence)
        for reader in readers:
            number, values = shown(reader) if reader.newest().number == reader.number else (None, None)
            if number is None:  # Only the last word was not written.
                newest = reader.newest()
                number, values = newest.number, [int(array[0]) for array in reader.copy(newest)]
            assert (number, values) in [(1, [1, 1]), (2, [2, 2])]
        # A publisher that was only interrupted goes on.
        board.publish(arrays(3), 3)
        assert [shown(reader) for reader in readers] == [(3, [3, 3])] * 2


def test_a_set_that_was_replaced_twice_is_not_read():
    """CW7: the reader learns that it was overtaken, and finds the newest at the next look."""
    with opened() as (board, (reader,)):
        board.publish(arrays(1), 1)
        overtaken = reader.newest()
        board.publish(arrays(2), 2)
        assert [array[0] for array in reader.copy(overtaken)] == [1, 1]
        board.publish(arrays(3), 3)
        assert reader.copy(overtaken) is None
        assert shown(reader) == (3, [3, 3])


def test_memory_is_taken_by_what_is_written():
    """A board for many readers costs what one of them costs, until they get sets apart."""
    layout = WeightLayout({"w": np.zeros(1 << 20, np.uint8)})
    board = WeightBoard(layout, addresses=64)
    try:
        board.publish([np.ones(1 << 20, np.uint8)], 1)
        assert 512 * os.fstat(board.descriptor).st_blocks < 2 << 20
        board.publish([np.ones(1 << 20, np.uint8)], 2, addresses=[63])
        assert 512 * os.fstat(board.descriptor).st_blocks < 3 << 20
    finally:
        board.close()


def test_a_closed_reader():
    with opened() as (board, (reader,)):
        reader.close()
        with pytest.raises(ValueError, match="released"):
            _ = reader.sequence
        assert not board.is_closed
