"""Copies of rows, and the pool of their buffers."""

import importlib.util
import threading

import numpy as np
import pytest

from headrace.store.copying import stream_rows
from headrace.store.gather import Pool, gather, gather_into

LARGE = (256, 1024)
FLOAT = np.dtype(np.float32)


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


# ---- the pool --------------------------------------------------------------------------------------------------------


def test_a_buffer_is_used_again_when_nobody_has_it():
    """Performance P8: a buffer returns to the pool when the last array over it is garbage."""
    pool = Pool()
    first = pool.empty(LARGE, FLOAT)
    where = address(first)
    del first
    assert address(pool.empty(LARGE, FLOAT)) == where
    assert address(pool.empty((1024, 256), np.dtype(np.int32))) == where  # Bytes are bytes.


@pytest.mark.parametrize(
    "derive",
    [
        lambda array: array,
        lambda array: array[3:5],
        lambda array: array.reshape(-1)[::7],
        lambda array: array.view(np.uint8)[0],
        memoryview,
        lambda array: np.frombuffer(array, np.uint8),
        lambda array: {"nested": [array.T]},
    ],
    ids=["itself", "rows", "strided", "bytes", "memoryview", "frombuffer", "nested"],
)
def test_a_buffer_is_not_used_again_while_an_array_over_it_lives(derive):
    pool = Pool()
    kept = derive(pool.empty(LARGE, FLOAT))
    others = [pool.empty(LARGE, FLOAT) for _ in range(12)]
    for number, other in enumerate(others):
        other[:] = number
    assert len({address(other) for other in others}) == 12
    assert [other[0, 0] for other in others] == list(range(12))
    del kept


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
@pytest.mark.parametrize("part", [slice(None), slice(2, 3)])
def test_a_torch_tensor_over_a_buffer_counts(part):
    import torch

    pool = Pool()
    array = pool.empty(LARGE, FLOAT)
    where = address(array)
    tensor = torch.from_numpy(array)[part]
    del array
    assert address(pool.empty(LARGE, FLOAT)) != where
    del tensor
    assert where in {address(each) for each in [pool.empty(LARGE, FLOAT), pool.empty(LARGE, FLOAT)]}


def test_who_keeps_many_batches_gets_ever_new_memory():
    pool = Pool()
    kept = [pool.empty(LARGE, FLOAT) for _ in range(30)]
    for number, array in enumerate(kept):
        array[:] = number
    assert all((array == number).all() for number, array in enumerate(kept))
    # Those that the pool still knows come back.
    known = {address(array) for array in kept}
    del kept, array
    assert address(pool.empty(LARGE, FLOAT)) in known


def test_batches_of_ever_new_sizes_do_not_fill_the_memory():
    """Their sizes are rounded up, and sizes that are not asked for any more are forgotten."""
    pool = Pool()
    held = set()
    for rows in range(200, 4000):
        array = pool.empty((rows, 1024), np.dtype(np.uint8))
        array[:] = 1
        held.add(address(array))
        del array
    kept = sum(buffer.nbytes for buffers in pool._buffers.values() for buffer in buffers)
    assert kept < 16 * 8 * 4_000_000
    assert len(pool._buffers) <= 16
    assert len(held) < 100


def test_small_arrays_and_empty_ones_are_plain():
    pool = Pool()
    assert pool.empty((3, 2), FLOAT).shape == (3, 2)
    assert pool.empty((0, 5), FLOAT).shape == (0, 5)
    assert pool.empty((), FLOAT).shape == ()


def test_threads_never_share_a_buffer():
    pool = Pool()
    wrong: list[int] = []
    gate = threading.Barrier(4)

    def work(number: int) -> None:
        gate.wait()
        for _ in range(50):
            array = pool.empty((64, 1024), FLOAT)
            array[:] = number
            if not (array == number).all():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# ---- gather ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [np.array([], np.int64), np.array([5, 0, 5]), np.array([[1, 2], [3, 9]])])
@pytest.mark.parametrize("shape", [(), (3,), (40, 700)])
def test_gather_copies_rows(rows: np.ndarray, shape: tuple[int, ...]):
    """`dtype[*rows.shape, ...]`, and a copy: it never changes and changes nothing (replay B4)."""
    column = np.arange(10 * int(np.prod(shape)), dtype=np.int32).reshape(10, *shape)
    pool = Pool()
    (got,) = gather(column, [rows], pool)
    assert got.dtype == column.dtype
    assert got.shape == rows.shape + shape
    assert (got == column[rows]).all()
    before = column.copy()
    got[...] = -1
    assert (column == before).all()


@pytest.mark.parametrize("shape", [(1024,), (3, 1024), (1030,), (0, 1024), (0,)])
@pytest.mark.parametrize("lengths", [[(5,)], [(4, 3), (4,), (4, 2)], [(6, 2), (4,)], [(0,), (3,)]])
def test_large_copies_are_those_of_small_ones(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], lengths: list[tuple[int, ...]]
):
    """Past the caches, if their rows have whole words, or not; also of columns of no bytes and read-only ones."""
    column = np.random.default_rng(0).integers(0, 255, (10, *shape), np.uint8)
    column.setflags(write=False)
    # What is no row is taken from the nearest one, as before.
    sets = [np.random.default_rng(1).integers(-1, 12, each) for each in lengths]
    small = gather(column, sets, Pool())
    monkeypatch.setattr("headrace.store.gather.STREAMED", 0)
    large = gather(column, sets, Pool())
    for one, other, rows in zip(small, large, sets, strict=True):
        assert one.shape == other.shape == rows.shape + shape
        assert one.dtype == other.dtype
        assert (one == other).all()
        assert not np.shares_memory(other, column)


@pytest.mark.parametrize("beyond", [0, 1, 8, 16])
def test_rows_go_past_the_caches_to_any_place(beyond: int):
    """The instruction wants even places; elsewhere they are copied the usual way."""
    column = np.random.default_rng(0).integers(0, 255, (10, 48), np.uint8)
    out = np.zeros(4 * 48 + 64, np.uint8)
    begin = -address(out) % 64 + beyond
    rows = np.array([3, 0, 9, 3])
    stream_rows(column.reshape(-1), 48, rows, begin + 48 * np.arange(4), out)
    assert (out[begin : begin + 4 * 48].reshape(4, 48) == column[rows]).all()
    assert not out[:begin].any()
    assert not out[begin + 4 * 48 :].any()


@pytest.mark.parametrize("least", [0, 1 << 30], ids=["past the caches", "through the caches"])
@pytest.mark.parametrize("width", [16, 1024, 1040, 1041])
def test_rows_are_copied_into_an_array(monkeypatch, least, width):
    monkeypatch.setattr("headrace.store.gather.STREAMED", least)
    generator = np.random.default_rng(width)
    column = generator.integers(0, 256, (9, width), np.uint8)
    rows = generator.integers(0, 9, (3, 2))
    out = np.zeros((4, 2, width), np.uint8)
    gather_into(column, rows, out[:3])
    np.testing.assert_array_equal(out[:3], column[rows])
    assert not out[3].any()
