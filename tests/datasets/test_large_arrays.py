"""Arrays of datasets beyond a size lie in temporary files, so that memory does not limit a file that is read."""

import errno
import os
import tempfile
import tracemalloc

import h5py
import numpy as np
import pytest

import headrace as hr
from headrace.datasets import large_arrays
from headrace.datasets.foreign import flat
from headrace.datasets.large_arrays import empty_array, take_rows
from headrace.datasets.npz import archive

STEPS, EPISODES = 25, 40
MIB = 1 << 20


@pytest.fixture
def small_memory(monkeypatch):
    monkeypatch.setattr(large_arrays, "_IN_MEMORY", MIB // 4)
    monkeypatch.setattr(archive, "_CHUNK", MIB // 8)
    monkeypatch.setattr(flat, "_BYTES_AT_ONCE", MIB // 8)


def episode(number):
    observations = np.full((STEPS + 1, 1024), number, np.float32)
    end = np.arange(STEPS) == STEPS - 1
    return hr.Episode(observations, np.arange(STEPS), np.ones(STEPS), end, end & False)


def columns_of_others(*, lengths):
    """4 MiB of observations in the arrays of another tool; the last observation of each episode is its next one."""
    numbers = np.repeat(np.arange(EPISODES), STEPS)
    rows = np.broadcast_to(numbers.astype(np.float32)[:, None], (EPISODES * STEPS, 1024))
    ends = np.arange(1, len(rows) + 1) % STEPS == 0
    columns = {
        "actions": np.arange(len(rows)),
        "rewards": np.ones(len(rows)),
        "terminals": ends,
        "timeouts": ends & 0,
    }
    if lengths:
        with_finals = np.repeat(np.arange(EPISODES, dtype=np.float32), STEPS + 1)[:, None]
        more = {"observations": with_finals + np.zeros((1, 1024), np.float32)}
        return {**columns, **more, "episode_lengths": np.full(EPISODES, STEPS)}
    return {**columns, "observations": rows, "next_observations": rows}


def peak_of(function):
    """The most memory of Python and NumPy at a time, in MiB, and the result; files and mappings are not in it."""
    tracemalloc.start()
    try:
        result = function()
        return tracemalloc.get_traced_memory()[1] / MIB, result
    finally:
        tracemalloc.stop()


def values_of(load, *arguments, **options):
    with load(*arguments, **options) as dataset:
        return [
            (float(each.observations[0, 0]), float(each.observations[-1, -1]), len(each)) for each in dataset
        ]


EXPECTED = [(number, number, STEPS) for number in range(EPISODES)]


def test_a_file_of_headrace_is_read_in_little_memory(tmp_path, small_memory):
    path = hr.datasets.save_npz(map(episode, range(EPISODES)), tmp_path / "x")
    peak, found = peak_of(lambda: values_of(hr.datasets.load_npz, path))
    assert found == EXPECTED
    assert peak < 1.5, peak  # the observations are 4.1 MiB


@pytest.mark.parametrize("lengths", [True, False])
def test_a_file_of_another_tool_is_read_in_little_memory(lengths, tmp_path, small_memory):
    np.savez(tmp_path / "x.npz", **columns_of_others(lengths=lengths))
    peak, found = peak_of(lambda: values_of(hr.datasets.load_npz, tmp_path / "x.npz"))
    assert found == EXPECTED
    assert peak < 1.5, peak


@pytest.mark.parametrize("missing_final", ["error", "repeat"])
def test_a_d4rl_file_is_read_in_little_memory(missing_final, tmp_path, small_memory):
    columns = columns_of_others(lengths=False)
    if missing_final == "repeat":
        del columns["next_observations"]
    with h5py.File(tmp_path / "x.hdf5", "w") as file:
        for name, value in columns.items():
            file[name] = value
    peak, found = peak_of(
        lambda: values_of(hr.datasets.load_d4rl, tmp_path / "x.hdf5", missing_final=missing_final)
    )
    assert found == EXPECTED
    assert peak < 1.5, peak


def test_columns_that_stand_column_by_column_are_read(tmp_path, small_memory):
    columns = columns_of_others(lengths=True)
    np.savez(tmp_path / "x.npz", **{**columns, "observations": np.asfortranarray(columns["observations"])})
    assert values_of(hr.datasets.load_npz, tmp_path / "x.npz") == EXPECTED


def test_changes_to_a_large_array_are_kept_and_its_file_has_no_name(tmp_path, small_memory, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    array = empty_array((MIB,), np.dtype(np.uint8))
    array[:] = 7
    assert (type(array), int(array.sum()), list(tmp_path.iterdir())) == (np.ndarray, 7 * MIB, [])


@pytest.mark.parametrize("dtype", ["float32", "uint8", "U3", ">i2"])
def test_taken_rows_are_those_of_an_index(dtype, small_memory):
    array = np.arange(30 * 2000).reshape(30, 2000).astype(dtype)
    rows = np.random.default_rng(0).integers(0, 30, 70)
    assert (take_rows(array, rows) == array[rows]).all()


def test_a_full_folder_of_temporary_files_is_told(tmp_path, small_memory, monkeypatch):
    """Datasets G11."""
    path = hr.datasets.save_npz([episode(n) for n in range(4)], tmp_path / "x")

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(large_arrays, "_reserve", full)
    with pytest.raises(
        hr.DatasetError, match=r"x\.npz: observations: .*No space left.*TMPDIR names another folder"
    ):
        hr.datasets.load_npz(path)


def test_where_the_system_cannot_reserve_zeros_are_written(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    with (tmp_path / "x").open("w+b") as file:
        large_arrays._reserve(file, 2 * MIB + 5)
    assert (tmp_path / "x").read_bytes() == bytes(2 * MIB + 5)
