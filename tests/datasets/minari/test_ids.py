"""Ids of Minari datasets and where they lie (datasets K1, K2)."""

from pathlib import Path

import pytest

from headrace import DatasetError
from headrace.datasets.minari import ids as minari_ids
from headrace.datasets.minari.ids import check_id, datasets_root, find_data_folder, list_ids


@pytest.mark.parametrize(
    "given", ["line-v0", "demo/line-v12", "ab/cd/e-v1", "D4RL/door/human-v2", "a_b-c/x_y-z-v003"]
)
def test_ids_are_names_with_a_version_and_namespaces_may_nest(given):
    """K2."""
    assert check_id(given) == given


BROKEN = ["", "line", "line-v", "line-v1.5", "a/line-v0", "/line-v0", "ab//line-v0", "line-v0/", "../line-v0",
          "my line-v0", "line-v0\n", "ab/-v0", "line-vx", "ab\\line-v0", "line_v0", "./x-v0"]  # fmt: skip


@pytest.mark.parametrize("given", BROKEN)
def test_another_id_is_a_value_error_that_shows_a_correct_one(given):
    """K2."""
    with pytest.raises(ValueError, match="write '") as raised:
        check_id(given)
    check_id(str(raised.value).rsplit("write '", 1)[1][:-1])


def test_a_missing_version_is_said():
    """Section 5."""
    with pytest.raises(ValueError) as raised:
        check_id("line")
    assert str(raised.value) == "dataset id 'line' has no version; write 'line-v0'"


def test_an_id_is_a_string():
    with pytest.raises(TypeError, match="dataset_id: expected a str"):
        check_id(3)


def test_the_root_is_the_argument_then_the_variable_then_the_home(monkeypatch, tmp_path):
    """K1."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "variable"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert datasets_root(tmp_path / "given") == tmp_path / "given"
    assert datasets_root(None) == tmp_path / "variable"
    monkeypatch.delenv("MINARI_DATASETS_PATH")
    assert datasets_root(None) == tmp_path / "home" / ".minari" / "datasets"


@pytest.fixture
def root(tmp_path):
    for name in ("demo/line-v0", "demo/line-v1", "other-v0", "demo/deep/er-v0"):
        (tmp_path / name / "data").mkdir(parents=True)
    (tmp_path / "demo" / ".line-v0.tmp" / "data").mkdir(parents=True)
    (tmp_path / "demo" / "notes.txt").write_text("no dataset")
    return tmp_path


def test_a_dataset_is_found_by_id_by_folder_and_by_its_data(root, monkeypatch):
    """K1."""
    data = root / "demo/line-v0/data"
    assert find_data_folder("demo/line-v0", root) == data
    assert find_data_folder(root / "demo/line-v0", None) == data
    assert find_data_folder(str(root / "demo/line-v0"), None) == data
    assert find_data_folder(data, None) == data
    monkeypatch.chdir(root)
    assert find_data_folder(Path("demo/line-v0"), root / "elsewhere").resolve() == data


def test_a_missing_dataset_is_named_with_its_full_path_and_similar_ids(root):
    """G11."""
    with pytest.raises(FileNotFoundError) as raised:
        find_data_folder("demo/line-v7", root)
    message = str(raised.value)
    assert str(root / "demo/line-v7") in message
    assert "demo/line-v0" in message
    assert "demo/line-v1" in message
    assert "other-v0" not in message


def test_a_folder_without_data_is_no_dataset(root):
    """G11."""
    with pytest.raises(FileNotFoundError, match="demo: it has no folder 'data'"):
        find_data_folder(root / "demo", None)


def test_a_file_is_a_dataset_error(root):
    """G11: a file of the wrong kind."""
    with pytest.raises(DatasetError, match="notes.txt: expected the folder of a Minari dataset, got a file"):
        find_data_folder(root / "demo/notes.txt", None)


def test_a_name_that_is_no_string_is_a_type_error():
    with pytest.raises(TypeError):
        find_data_folder(3, None)
    with pytest.raises(TypeError, match="an id or a path as str"):
        find_data_folder(b"line-v0", None)


def test_all_ids_of_a_root_are_listed_and_hidden_folders_are_not(root):
    assert list_ids(root) == ["demo/deep/er-v0", "demo/line-v0", "demo/line-v1", "other-v0"]
    assert list_ids(root / "missing") == []


def test_namespaces_have_a_folder_each(root):
    assert minari_ids.namespace_folders(root, "ab/cd/e-v0") == [root / "ab", root / "ab/cd"]
    assert minari_ids.namespace_folders(root, "e-v0") == []
