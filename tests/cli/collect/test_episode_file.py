"""Rows that go to disk as they come and become a dataset of episodes."""

import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.cli.collect.episode_file import EpisodeFile
from headrace.datasets import load_npz
from headrace.trajectories import Episode


def observed(numbers):
    numbers = np.asarray(numbers)
    return {
        "camera": np.repeat(numbers[:, None], 3, axis=1).astype(np.uint8),
        "pair": (numbers / 2, np.zeros((len(numbers), 0), np.float32)),
    }


def rows(numbers, ids, steps, ended):
    numbers, ended = np.asarray(numbers), np.asarray(ended)
    return {
        "observation": observed(numbers),
        "next_observation": observed(numbers + 1),
        "action": numbers,
        "reward": numbers * 0.5,
        "terminated": ended & (numbers % 2 == 0),
        "truncated": ended & (numbers % 2 == 1),
        "episode_id": np.asarray(ids),
        "t": np.asarray(steps),
        "policy_version": numbers // 3,
        "policy": {"value": numbers * 1.5},
    }


def expected(first, length, number, ended):
    numbers = np.arange(first, first + length)
    flags = np.zeros(length, bool)
    flags[-1] = ended
    return Episode(
        observed(np.arange(first, first + length + 1)),
        numbers,
        numbers * 0.5,
        flags & (numbers % 2 == 0),
        flags & (numbers % 2 == 1),
        extras={"policy_version": numbers // 3, "policy": {"value": numbers * 1.5}},
        id=number,
    )


@settings(max_examples=25, deadline=None)
@given(
    lanes=st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=4), min_size=1, max_size=3),
    size=st.integers(1, 9),
)
def test_episodes_side_by_side_come_back_one_by_one(tmp_path_factory, lanes, size):
    """Each whole, in the order of their beginnings, whatever the batches were; the last of a lane is under way."""
    folder = tmp_path_factory.mktemp("collected")
    streams, model = [], []
    for lane, lengths in enumerate(lanes):
        stream, first = [], 50 * lane
        for place, length in enumerate(lengths):
            # Numbers of episodes that do not rise with time.
            number, is_last = 100 * place + 10 - lane, place == len(lengths) - 1
            stream += [(first + t, number, t, t == length - 1 and not is_last) for t in range(length)]
            model.append((stream[-length], expected(first, length, number, not is_last)))
            first += length + 1
        streams.append(stream)
    order = [stream[at] for at in range(max(map(len, streams))) for stream in streams if at < len(stream)]
    with EpisodeFile(folder / "e.npz", {"environment": "line"}) as file:
        for begin in range(0, len(order), size):
            file.append(rows(*zip(*order[begin : begin + size], strict=True)))
    assert [path.name for path in folder.iterdir()] == ["e.npz"]
    with load_npz(folder / "e.npz") as dataset:
        found = list(dataset)
        assert dataset.metadata == {"environment": "line"}
    assert found == [episode for _, episode in sorted(model, key=lambda each: order.index(each[0]))]


def test_an_interruption_keeps_what_was_collected(tmp_path):
    def collect():
        with EpisodeFile(tmp_path / "e.npz", {}) as file:
            file.append(rows([4, 5], [0, 0], [0, 1], [False, False]))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        collect()
    with load_npz(tmp_path / "e.npz") as dataset:
        assert list(dataset) == [expected(4, 2, 0, ended=False)]


def test_no_rows_make_no_file(tmp_path):
    with EpisodeFile(tmp_path / "e.npz", {}):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there_is_replaced(tmp_path):
    for first in (0, 7):
        with EpisodeFile(tmp_path / "e.npz", {}) as file:
            file.append(rows([first], [0], [0], [True]))
    with load_npz(tmp_path / "e.npz") as dataset:
        assert list(dataset) == [expected(7, 1, 0, ended=True)]


def test_rows_that_are_not_contiguous(tmp_path):
    wide = rows(np.arange(6), [0] * 6, np.arange(6), [False] * 6)
    wide["action"] = np.arange(24, dtype=np.int32).reshape(6, 4)[:, ::2]
    with EpisodeFile(tmp_path / "e.npz", {}) as file:
        file.append(wide)
    with load_npz(tmp_path / "e.npz") as dataset:
        np.testing.assert_array_equal(dataset[0].actions, wide["action"])


def test_ctrl_c_between_two_columns_loses_no_whole_batch(tmp_path):
    batch = rows([4, 5], [0, 0], [0, 1], [False, False])

    file = EpisodeFile(tmp_path / "e.npz", {})
    file.append(batch)
    column = file._columns["reward"]
    column.append = interrupt
    with pytest.raises(KeyboardInterrupt):
        file.append(rows([6], [0], [2], [True]))
    file.close()
    with load_npz(tmp_path / "e.npz") as dataset:
        assert list(dataset) == [expected(4, 2, 0, ended=False)]


def interrupt(values):
    raise KeyboardInterrupt


def test_images_are_compressed_and_vectors_are_not(tmp_path):
    vectors = {
        **rows([4, 5], [0, 0], [0, 1], [False, True]),
        "observation": np.zeros((2, 4)),
        "next_observation": np.zeros((2, 4)),
    }
    images = {
        **vectors,
        "observation": np.zeros((2, 84, 84), np.uint8),
        "next_observation": np.zeros((2, 84, 84), np.uint8),
    }
    for name, columns, kind in (("v", vectors, zipfile.ZIP_STORED), ("i", images, zipfile.ZIP_DEFLATED)):
        with EpisodeFile(tmp_path / f"{name}.npz", {}) as file:
            file.append(columns)
        with zipfile.ZipFile(tmp_path / f"{name}.npz") as archive:
            assert {entry.compress_type for entry in archive.infolist()} == {kind}
        with load_npz(tmp_path / f"{name}.npz") as dataset:
            assert len(dataset[0]) == 2
