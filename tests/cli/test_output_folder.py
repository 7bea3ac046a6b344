"""Folders that commands write to."""

import click
import pytest

from headrace.cli import output_folder


def test_a_folder_that_nothing_was_written_to_is_removed(tmp_path):
    for folder in (
        output_folder.folder_for(tmp_path / "a" / "b", ("x",), False),
        output_folder.new_folder(tmp_path / "new"),
    ):
        with folder as path:
            assert path.is_dir()
        assert not path.exists()


def test_only_the_files_that_would_be_replaced_are_in_the_way(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with output_folder.folder_for(tmp_path, ("x",), False) as folder:
        (folder / "x").write_text("1")
    with pytest.raises(click.ClickException, match="holds x of an earlier run; --overwrite replaces"):
        with output_folder.folder_for(tmp_path, ("x",), False):
            pytest.fail("it was not refused")
    with output_folder.folder_for(tmp_path, ("x",), True) as folder:
        assert (folder / "x").read_text() == "1"


def test_of_two_commands_at_once_the_second_is_refused(tmp_path):
    with output_folder.folder_for(tmp_path / "run", ("x",), False):
        with pytest.raises(click.ClickException, match="run is being written to by another command"):
            with output_folder.folder_for(tmp_path / "run", ("x",), True):
                pytest.fail("it was not refused")
        assert (tmp_path / "run").is_dir()
    with output_folder.folder_for(tmp_path / "run", ("x",), False) as folder:
        assert folder.is_dir()


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(click.ClickException, match="file/run: cannot be made .*; give another folder"):
        with output_folder.folder_for(tmp_path / "file" / "run", ("x",), False):
            pytest.fail("it was not refused")
