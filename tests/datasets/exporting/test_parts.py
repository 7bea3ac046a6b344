"""The small parts that all formats are made of."""

import os
import sys

import numpy as np
import pytest

import headrace as hr
from headrace.datasets.exporting import atomic
from headrace.datasets.exporting.atomic import writing
from headrace.datasets.exporting.header import Header
from headrace.datasets.exporting.json_values import decode, encode
from headrace.datasets.exporting.progress import counting
from headrace.datasets.exporting.structure import Structure

# ---- all or nothing (datasets G6) ----------------------------------------------------------------------------------


def names(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def make_folder(path, text="new"):
    path.mkdir()
    (path / "data").write_text(text)


def test_a_folder_is_written_with_its_parents(tmp_path):
    with writing(tmp_path / "a" / "b" / "set-v0", overwrite=False) as temporary:
        make_folder(temporary)
        assert not (tmp_path / "a" / "b" / "set-v0").exists()
    assert names(tmp_path) == ["a", "a/b", "a/b/set-v0", "a/b/set-v0/data"]


@pytest.mark.parametrize("make", [make_folder, lambda path: path.write_text("new"), lambda path: None])
def test_an_error_leaves_nothing_not_even_parents(tmp_path, make):
    def interrupted():
        with writing(tmp_path / "a" / "b" / "x", overwrite=False) as temporary:
            make(temporary)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert names(tmp_path) == []


def test_parents_that_somebody_else_uses_stay(tmp_path):
    def fails():
        with writing(tmp_path / "a" / "x", overwrite=False):
            (tmp_path / "a" / "theirs").write_text("")
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fails()
    assert names(tmp_path) == ["a", "a/theirs"]


def test_a_folder_is_replaced_when_the_new_one_is_complete(tmp_path):
    target = tmp_path / "set-v0"
    make_folder(target, "old")
    with pytest.raises(FileExistsError):
        with writing(target, overwrite=False):
            raise AssertionError("not reached")
    with writing(target, overwrite=True) as temporary:
        make_folder(temporary)
        assert (target / "data").read_text() == "old"
    assert (target / "data").read_text() == "new"
    assert names(tmp_path) == ["set-v0", "set-v0/data"]


def test_a_folder_that_cannot_be_replaced_comes_back(tmp_path, monkeypatch):
    monkeypatch.setattr(atomic, "_renameat2", None)  # Where it can, the folder never leaves its name.
    target = tmp_path / "set-v0"
    make_folder(target, "old")
    rename = os.rename

    def failing(source, destination):
        if str(destination) == str(target) and str(source).endswith(".tmp"):
            raise OSError("no")
        rename(source, destination)

    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises(OSError, match="no"):
        with writing(target, overwrite=True) as temporary:
            make_folder(temporary)
    assert (target / "data").read_text() == "old"
    assert names(tmp_path) == ["set-v0", "set-v0/data"]


@pytest.mark.parametrize("make", [make_folder, lambda path: path.write_text("new")])
def test_a_target_that_came_meanwhile_stays(tmp_path, make):
    def too_late():
        with writing(tmp_path / "x", overwrite=False) as temporary:
            make(temporary)
            (tmp_path / "x").write_text("theirs")

    with pytest.raises(FileExistsError, match="overwrite=True"):
        too_late()
    assert (tmp_path / "x").read_text() == "theirs"
    assert names(tmp_path) == ["x"]


def test_a_file_system_without_links(tmp_path, monkeypatch):
    def no_links(source, destination):
        raise PermissionError("no links here")

    monkeypatch.setattr(os, "link", no_links)
    with writing(tmp_path / "x", overwrite=False) as temporary:
        temporary.write_text("new")
    assert (tmp_path / "x").read_text() == "new"
    assert names(tmp_path) == ["x"]


def test_a_file_replaces_no_folder_and_a_folder_no_file(tmp_path):
    make_folder(tmp_path / "folder")
    (tmp_path / "file").write_text("old")
    before = names(tmp_path)
    with pytest.raises(IsADirectoryError):
        with writing(tmp_path / "folder", overwrite=True) as temporary:
            temporary.write_text("new")
    with pytest.raises(NotADirectoryError):
        with writing(tmp_path / "file", overwrite=True) as temporary:
            make_folder(temporary)
    assert names(tmp_path) == before


# ---- progress (datasets G9) ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("quiet", [None, False])
def test_no_progress(quiet, capsys):
    with counting(quiet, 2) as one_more:
        one_more()
    assert capsys.readouterr() == ("", "")


def test_a_bar_where_there_is_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with counting(True, 2) as one_more:
        one_more()
        one_more()
    told = capsys.readouterr()
    assert told.out == ""
    assert "2/2" in told.err


# ---- descriptions in files -----------------------------------------------------------------------------------------


def test_a_structure_that_nobody_wrote_is_refused():
    one = hr.Episode([0.0, 1.0], [1], [1.0], [True], [False])
    data = Structure.of(one).to_json()
    for part in data:
        with pytest.raises(hr.SpecError):
            Structure.from_json({name: value for name, value in data.items() if name != part})
    for leaf in (["O", []], ["<f8", [-1]], ["<f8", 3], "<f8", ["nothing", []], ["<M8[s]", []]):
        with pytest.raises(hr.SpecError):
            Structure.from_json({**data, "rewards": {"leaf": leaf}})


@pytest.mark.parametrize(
    "value", [object(), {1: 2}, {"a": {3}}, np.array([None]), np.datetime64("2020-01-01")]
)
def test_what_no_file_can_hold_is_refused(value):
    with pytest.raises(hr.SpecError, match="^options"):
        encode(value, "options")


def test_a_value_that_contains_itself_is_refused():
    value = {}
    value["a"] = value
    with pytest.raises(hr.SpecError, match="contain itself"):
        encode(value, "options")


@pytest.mark.parametrize(
    "data",
    [
        {"$": "array"},
        {"$": "array", "dtype": "O", "shape": [1], "data": "AAAAAAAAAAA="},
        {"$": "array", "dtype": "<f8", "shape": [2], "data": "AAAAAAAAAAA="},
        {"$": "bytes", "value": "?"},
        {"$": "float", "value": "x"},
        {"$": "what"},
        {"$": ["x"]},
        {"$": "dict", "items": [1]},
    ],
)
def test_a_marked_value_that_nobody_wrote_is_refused(data):
    with pytest.raises(hr.SpecError):
        decode(data)


def test_numpy_scalars_come_back_as_such():
    back = decode(encode({"a": np.float32(1.5), "b": np.int64(3), "$": 1}, "options"))
    assert back == {"a": 1.5, "b": 3, "$": 1}
    assert (type(back["a"]), type(back["b"])) == (np.float32, np.int64)


@pytest.mark.parametrize(
    "text", ["", "3", "[]", "{}", "null", '{"crc32": 0}', '{"crc32": 0, "version": 1}', "[" * 10_000]
)
def test_a_header_that_nobody_wrote_is_refused(text):
    with pytest.raises(hr.SpecError):
        Header.from_json(text)


def test_a_header_of_a_later_version_is_refused(monkeypatch):
    one = hr.Episode([0.0, 1.0], [1], [1.0], [True], [False])
    header = Header(Structure.of(one))
    header.add(one, header.structure.check(0, one))
    monkeypatch.setattr("headrace.datasets.exporting.header.VERSION", 2)
    text = header.to_json()
    monkeypatch.undo()
    with pytest.raises(hr.SpecError, match="expected version 1"):
        Header.from_json(text)
