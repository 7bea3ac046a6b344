"""Folders of commands, and what Ctrl-C does while they are written."""

import signal

import click
import pytest

from headrace.cli import output


def test_ctrl_c_while_files_are_written_is_answered_and_the_second_one_ends_it(capsys):
    steps = []

    def write():
        with output.finishing("writing"):
            signal.raise_signal(signal.SIGINT)
            steps.append("goes on")
            signal.raise_signal(signal.SIGINT)
            steps.append("never")

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        write()
    assert steps == ["goes on"]
    assert capsys.readouterr().err == "writing; Ctrl-C again gives it up\n"
    assert signal.getsignal(signal.SIGINT) is before


def test_without_ctrl_c_nothing_is_said(capsys):
    before = signal.getsignal(signal.SIGINT)
    with output.finishing("writing"):
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before
    assert capsys.readouterr().err == ""


def test_a_folder_that_nothing_was_written_to_is_removed(tmp_path):
    for folder in (
        output.folder_for(tmp_path / "a" / "b", ("x",), False),
        output.new_folder(tmp_path / "new"),
    ):
        with folder as path:
            assert path.is_dir()
        assert not path.exists()


def test_only_the_files_that_would_be_replaced_are_in_the_way(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with output.folder_for(tmp_path, ("x",), False) as folder:
        (folder / "x").write_text("1")
    with pytest.raises(click.ClickException, match="holds x of an earlier run; --overwrite replaces"):
        with output.folder_for(tmp_path, ("x",), False):
            pytest.fail("it was not refused")
    with output.folder_for(tmp_path, ("x",), True) as folder:
        assert (folder / "x").read_text() == "1"


def test_of_two_commands_at_once_the_second_is_refused(tmp_path):
    with output.folder_for(tmp_path / "run", ("x",), False):
        with pytest.raises(click.ClickException, match="run is being written to by another command"):
            with output.folder_for(tmp_path / "run", ("x",), True):
                pytest.fail("it was not refused")
        assert (tmp_path / "run").is_dir()
    with output.folder_for(tmp_path / "run", ("x",), False) as folder:
        assert folder.is_dir()


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(click.ClickException, match="file/run: cannot be made .*; give another --out"):
        with output.folder_for(tmp_path / "file" / "run", ("x",), False):
            pytest.fail("it was not refused")
