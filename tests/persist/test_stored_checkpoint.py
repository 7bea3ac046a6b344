"""A checkpoint is looked at without memory for its rows (datasets G2)."""

import errno
import os
import sys
import tempfile

import numpy as np
import pytest
from click.testing import CliRunner

import headrace as hr
from headrace.cli import main
from headrace.persist.checkpoint.stored import StoredCheckpoint
from headrace.store.memory.arena import Arena

STEP = {
    "observation": np.zeros(250_000, np.uint8), "action": 0, "reward": 1.0, "terminated": False, "truncated": False
}  # fmt: skip
EPISODES, STEPS, ROW = 12, 9, 250_000
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="files are mapped on Linux")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A checkpoint of 12 episodes of 10 rows: 30 MB. The last episode is under way."""
    tables = [hr.Table.prioritized(1000, 0.6), hr.Table.uniform(20, name="q")]
    folder = tmp_path_factory.mktemp("checkpoint")
    with hr.Replay(hr.Signature.like(STEP), tables, seed=0) as replay:
        with replay.writer(items=[hr.ItemRule("replay", 1), hr.ItemRule("q", 2)]) as writer:
            for episode in range(EPISODES):
                for t in range(STEPS):
                    value = np.full(ROW, episode * 10 + t, np.uint8)
                    writer.append({**STEP, "observation": value, "reward": float(t)})
                writer.end_episode({"observation": np.full(ROW, episode * 10 + 9, np.uint8)})
            writer.append(STEP)
            replay.save(folder)
    return folder


def of_this_process():
    """Bytes of memory that only this process has; pages of files are not in it."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("RssAnon"))


def test_it_holds_what_its_replay_holds(folder):
    with StoredCheckpoint(folder) as stored, hr.Replay.load(folder) as replay:
        found, expected = hr.datasets.episodes(stored), hr.datasets.episodes(replay)
        assert list(found) == list(expected)
        assert found.left_out == expected.left_out == 1
        assert stored.tables == {name: len(replay.table(name)) for name in replay.table_names}
        assert stored.signature == replay.signature
    with pytest.raises(hr.Closed):
        hr.datasets.episodes(stored)


@on_linux
def test_its_rows_take_no_memory(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = of_this_process()
    with StoredCheckpoint(folder) as stored:
        lengths = [len(episode) for episode in hr.datasets.episodes(stored)]
        more = of_this_process() - before
        assert list(tmp_path.iterdir()) == []  # The file has no name.
        assert stored.store.is_on_disk
    assert lengths == [STEPS] * EPISODES
    assert more < 12 << 20, more  # one episode is 2.5 MB; all rows are 30 MB


@on_linux
def test_a_full_folder_of_temporary_files_is_told(folder, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Arena, "reserve", full)
    told = CliRunner().invoke(main, ["inspect", str(folder)])
    assert told.exit_code == 1
    assert "TMPDIR names another folder for temporary files" in told.output


def test_a_damaged_newest_checkpoint_is_left_out_and_one_alone_is_refused(folder, tmp_path):
    with hr.Replay.load(folder) as replay:
        replay.save(tmp_path)
        newest = replay.save(tmp_path)
    largest = max(newest.iterdir(), key=lambda path: path.stat().st_size)
    with largest.open("r+b") as file:
        file.seek(100)
        file.write(b"damage")
    with pytest.warns(UserWarning, match=f"{newest.name} is left out"), StoredCheckpoint(tmp_path) as stored:
        assert stored.tables["replay"] == EPISODES * STEPS + 1
    with pytest.raises(hr.CheckpointError, match=largest.name):
        StoredCheckpoint(newest)
