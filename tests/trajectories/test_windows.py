"""trajectories W1-W6: the closed form against windows found by search."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.trajectories.windows import (
    EndOfEpisode,
    closing_windows,
    regular_windows,
    rows_in_no_window,
    windows,
)

DROP, TRUNCATE, PAD = EndOfEpisode.DROP, EndOfEpisode.TRUNCATE, EndOfEpisode.PAD
TILE, LAST, CONTINUE = EndOfEpisode.TILE, EndOfEpisode.LAST, EndOfEpisode.CONTINUE


def searched(num_rows: int, length: int, stride: int, end: EndOfEpisode) -> list[tuple[int, int, int]]:
    """The same windows by looking at every start, row by row."""
    found = []
    covered_to = 0
    for start in range(0, num_rows, stride):
        rows = [row for row in range(start, start + length) if row < num_rows]
        whole = len(rows) == length
        # The first window that is not whole closes the run, unless nothing is left for it to hold.
        news = rows[-1] >= covered_to
        if whole or end is TILE:
            found.append((start, len(rows), length - len(rows)))
        elif end in (PAD, TRUNCATE) and news:
            found.append((start, len(rows), length - len(rows) if end is PAD else 0))
        covered_to = max(covered_to, rows[-1] + 1)
        if not whole and end is not TILE:
            break
    if end is LAST and num_rows >= length and (num_rows - length, length, 0) not in found:
        found.append((num_rows - length, length, 0))
    return found


shapes = st.tuples(st.integers(0, 30), st.integers(1, 9), st.integers(1, 12), st.sampled_from(EndOfEpisode))


def allowed(shape: tuple[int, int, int, EndOfEpisode]) -> bool:
    _, length, stride, end = shape
    return stride <= length or end not in (PAD, TRUNCATE)


@given(shapes.filter(allowed))
def test_w1_equals_the_search(shape):
    assert windows(*shape) == searched(*shape)


@given(shapes.filter(allowed))
def test_w1_rows_are_real_and_starts_rise(shape):
    num_rows, length, _, end = shape
    found = windows(*shape)
    assert found == sorted(set(found))
    for start, rows, padding in found:
        assert rows >= 1
        assert start >= 0
        assert start + rows <= num_rows
        assert padding >= 0
        assert rows + padding == length or end is TRUNCATE
        assert padding == 0 or end in (PAD, TILE)


@given(shapes.filter(allowed))
def test_w1_w2_rows_in_no_window(shape):
    num_rows, _, _, _ = shape
    held = {row for start, rows, _ in windows(*shape) for row in range(start, start + rows)}
    assert rows_in_no_window(*shape) == num_rows - len(held)


@given(shapes.filter(allowed))
def test_w5_regular_windows_come_first(shape):
    num_rows, length, stride, end = shape
    count = regular_windows(num_rows, length, stride)
    found = windows(*shape)
    assert found[:count] == [(i * stride, length, 0) for i in range(count)]
    assert found[count:] == closing_windows(num_rows, length, stride, end)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((6, 4, 2, TILE), [(0, 4, 0), (2, 4, 0), (4, 2, 2)]),
        ((6, 4, 3, LAST), [(0, 4, 0), (2, 4, 0)]),
        ((6, 3, 2, PAD), [(0, 3, 0), (2, 3, 0), (4, 2, 1)]),
        ((3, 4, 1, PAD), [(0, 3, 1)]),
        ((3, 4, 1, LAST), []),
        ((7, 2, 5, LAST), [(0, 2, 0), (5, 2, 0)]),
        ((6, 3, 2, TRUNCATE), [(0, 3, 0), (2, 3, 0), (4, 2, 0)]),
        ((6, 2, 4, TILE), [(0, 2, 0), (4, 2, 0)]),
        ((5, 2, 4, TILE), [(0, 2, 0), (4, 1, 1)]),
        ((6, 3, 2, CONTINUE), [(0, 3, 0), (2, 3, 0)]),
    ],
)
def test_w1_examples(arguments, expected):
    assert windows(*arguments) == expected


def test_the_defaults_are_stride_one_and_drop():
    assert windows(4, 3) == [(0, 3, 0), (1, 3, 0)]


@pytest.mark.parametrize("end", [PAD, TRUNCATE])
def test_w2_a_stride_over_the_length_is_refused(end):
    with pytest.raises(ValueError, match=r"stride: expected at most length=2 .* got 3"):
        windows(9, 2, 3, end)
    with pytest.raises(ValueError, match="stride"):
        windows(0, 2, 3, end)


@pytest.mark.parametrize("end", [DROP, LAST, TILE, CONTINUE])
def test_w2_skipped_rows_count_as_dropped(end):
    # Rows 2 and 3 of 0 1 | 2 3 | 4 5 lie between two windows.
    assert windows(6, 2, 4, end) == [(0, 2, 0), (4, 2, 0)]
    assert rows_in_no_window(6, 2, 4, end) == 2


@pytest.mark.parametrize(
    ("arguments", "name"),
    [((4, 0), "length"), ((4, 2, 0), "stride"), ((-1, 2), "num_rows"), ((4, -3), "length")],
)
def test_w3_too_small_is_a_value_error(arguments, name):
    with pytest.raises(ValueError, match=rf"^{name}: expected an integer >= \d, got -?\d"):
        windows(*arguments)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((4, 2.0), "length"),
        ((4, 2, True), "stride"),
        (("4", 2), "num_rows"),
        ((4, None), "length"),
        ((np.bool_(True), 2), "num_rows"),
        ((4, np.float32(2)), "length"),
    ],
)
def test_w3_a_wrong_type_is_a_type_error(arguments, name):
    with pytest.raises(TypeError, match=f"^{name}: expected an integer"):
        windows(*arguments)


@pytest.mark.parametrize("end", ["DROP", "drop", 0, None, EndOfEpisode])
def test_w3_the_end_is_a_member(end):
    with pytest.raises(TypeError, match="end: expected a member of EndOfEpisode"):
        windows(4, 2, 1, end)


def test_w3_numpy_integers_are_integers():
    found = windows(np.int64(3), np.uint8(2), np.int32(1))
    assert found == [(0, 2, 0), (1, 2, 0)]
    assert all(type(number) is int for window in found for number in window)


@given(st.integers(1, 9), st.integers(1, 9), st.sampled_from(EndOfEpisode))
def test_w3_no_rows_no_windows(length, stride, end):
    if allowed((0, length, stride, end)):
        assert windows(0, length, stride, end) == []


def test_closing_windows_do_not_walk_a_long_run():
    assert closing_windows(10**15, 3, 2, PAD) == [(10**15 - 2, 2, 1)]
