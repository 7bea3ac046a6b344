"""Columns that grow on disk and become one npz file."""

import numpy as np
import pytest

from headrace.cli.transition_file import TransitionFile


def rows(start, stop):
    at = np.arange(start, stop)
    return {
        "observation": {"camera": np.repeat(at[:, None], 3, axis=1).astype(np.uint8), "speed": at / 2},
        "terminated": at % 2 == 0,
    }


def test_what_was_appended_comes_back_without_pickle(tmp_path):
    with TransitionFile(tmp_path / "t.npz") as file:
        for start, stop in ((0, 5), (5, 6), (6, 30)):
            file.append(rows(start, stop))
    expected = rows(0, 30)
    with np.load(tmp_path / "t.npz", allow_pickle=False) as found:
        assert sorted(found) == ["observation/camera", "observation/speed", "terminated"]
        np.testing.assert_array_equal(found["observation/camera"], expected["observation"]["camera"])
        np.testing.assert_array_equal(found["observation/speed"], expected["observation"]["speed"])
        np.testing.assert_array_equal(found["terminated"], expected["terminated"])
        assert found["observation/camera"].dtype == np.uint8
    assert [path.name for path in tmp_path.iterdir()] == ["t.npz"]


def test_an_interruption_keeps_what_was_collected(tmp_path):
    def collect():
        with TransitionFile(tmp_path / "t.npz") as file:
            file.append(rows(0, 4))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        collect()
    with np.load(tmp_path / "t.npz", allow_pickle=False) as found:
        assert len(found["terminated"]) == 4


def test_rows_that_are_not_contiguous(tmp_path):
    wide = np.arange(24, dtype=np.int32).reshape(4, 6)
    with TransitionFile(tmp_path / "t.npz") as file:
        file.append({"x": wide[:, ::2]})
    with np.load(tmp_path / "t.npz") as found:
        np.testing.assert_array_equal(found["x"], wide[:, ::2])
