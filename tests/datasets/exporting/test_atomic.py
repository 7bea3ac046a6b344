"""A target is there, whole, whatever system call a process is killed after (datasets G6)."""

import contextlib
import os
from pathlib import Path

import pytest

from headrace.cli.episode_source import open_source
from headrace.datasets import load_minari, save_minari
from headrace.datasets.exporting import atomic
from headrace.datasets.opening import open_dataset
from headrace.trajectories import Episode

# The calls that change a folder; all that Python's own modules do goes through them.
CALLS = ("rename", "replace", "link", "unlink", "rmdir", "mkdir", "fsync", "open")


class Killed(BaseException):
    pass


class Process:
    """Calls of the system, of which none after the first `limit` happens: cleaning up does not happen either."""

    def __init__(self, monkeypatch, limit, *, exchanges):
        self.calls, self._limit, self._exchanges = 0, limit, exchanges
        for name in CALLS:
            monkeypatch.setattr(os, name, self._counted(getattr(os, name)))
        if exchanges:
            assert atomic._renameat2 is not None
            monkeypatch.setattr(atomic, "_renameat2", self._counted(atomic._renameat2))
        else:
            monkeypatch.setattr(atomic, "_renameat2", lambda *arguments: -1)

    def _counted(self, call):
        def counted(*arguments, **options):
            if self.calls >= self._limit:
                raise Killed
            self.calls += 1
            return call(*arguments, **options)

        return counted


def write(target, text, overwrite=True):
    with atomic.writing(target, overwrite) as temporary:
        temporary.mkdir()
        for name in ("a", "b"):
            (temporary / name).write_text(text)


def read(folder):
    return {path.name: path.read_text() for path in folder.iterdir()}


def whole(text):
    return {"a": text, "b": text}


@pytest.fixture(params=["exchange", "renames"])
def exchanges(request, tmp_path):
    if request.param == "exchange":
        (tmp_path / "one").mkdir()
        (tmp_path / "other").mkdir()
        if not atomic._exchange(tmp_path / "one", tmp_path / "other"):
            pytest.skip("this file system does not exchange names")
    return request.param == "exchange"


def killed_after_each_call(folder, exchanges):
    """The target as each killed process left it."""
    for limit in range(200):
        target = folder / str(limit) / "set"
        write(target, "old")
        with pytest.MonkeyPatch.context() as patch:
            process = Process(patch, limit, exchanges=exchanges)
            with contextlib.suppress(Killed):
                write(target, "new")
        yield target
        if process.calls < limit:
            return
    raise AssertionError("it did not end")


def test_a_killed_process_leaves_the_old_folder_or_the_new_one(tmp_path, exchanges):
    found, missing = [], 0
    for target in killed_after_each_call(tmp_path, exchanges):
        missing += not target.exists()
        content = read(atomic.whole_folder(target))
        assert content in (whole("old"), whole("new"))
        found.append(content["a"])
    assert found == sorted(found, reverse=True)  # "old", and from some call on "new".
    assert found[-1] == "new"
    # Without an exchange there is one instant between two names.
    assert missing == (0 if exchanges else 1)


def test_the_next_write_after_a_kill_goes_on(tmp_path, exchanges):
    for target in killed_after_each_call(tmp_path, exchanges):
        with pytest.raises(FileExistsError, match="overwrite=True"):
            write(target, "other", overwrite=False)
        assert read(target) in (whole("old"), whole("new"))
        write(target, "newer")
        assert read(target) == whole("newer")
        assert not target.with_name(".set.headrace-old").exists()


@pytest.mark.parametrize("exchanges", [True, False])
def test_a_copy_that_a_user_keeps_beside_the_target_is_left_alone(tmp_path, monkeypatch, exchanges):
    if not exchanges:
        monkeypatch.setattr(atomic, "_exchange", lambda *_: False)
    write(tmp_path / ".set.old", "mine")
    write(tmp_path / "set", "new")
    write(tmp_path / "set", "newer")
    assert read(tmp_path / ".set.old") == whole("mine")


def test_what_was_cleared_away_does_not_come_back(tmp_path):
    """A folder that is removed by hand after a kill is not found again as what it was before."""
    for number, target in enumerate(killed_after_each_call(tmp_path, exchanges=False)):
        write(target, "newer")
        os.rename(target, tmp_path / f"moved-{number}")
        assert not atomic.whole_folder(target).exists()


def test_a_minari_dataset_is_read_where_it_was_left(tmp_path, caplog):
    pytest.importorskip("h5py")
    episode = Episode([0.0, 1.0], [1], [0.5], [True], [False])
    path = save_minari([episode], "line-v0", root=tmp_path)
    os.rename(path, path.with_name(".line-v0.headrace-old"))
    with load_minari("line-v0", root=tmp_path) as dataset:
        assert list(dataset) == [episode]
    assert "line-v0 is missing" in caplog.text
    with open_dataset(path) as dataset:
        assert len(dataset) == 1
    with open_source(str(path)) as source:
        assert list(source.episodes) == [episode]
    save_minari([episode, episode], "line-v0", root=tmp_path, overwrite=True)
    with load_minari("line-v0", root=tmp_path) as dataset:
        assert len(dataset) == 2
    assert sorted(entry.name for entry in Path(tmp_path).iterdir()) == ["line-v0"]
