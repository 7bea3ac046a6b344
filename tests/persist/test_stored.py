"""A store on disk is looked at without a change, in whatever state its process left it (replay D1, D2)."""

import json
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from click.testing import CliRunner

import headrace as hr
from headrace.cli import main
from headrace.persist.disk import store_files
from headrace.persist.disk.stored import StoredReplay

STEP = {"observation": np.zeros(2), "action": 0, "reward": 1.0, "terminated": False, "truncated": False}


def tables():
    prioritized = hr.selectors.Prioritized()
    return [
        hr.Table("t", sampler=prioritized, remover=hr.selectors.Fifo(), max_size=20),
        hr.Table.queue("q", max_size=1000),
    ]


def filled(path):
    """A store of episodes of 1, 2, ... 6 steps and one under way; table `t` lets go of the older ones."""
    replay = hr.Replay(hr.Signature.like(STEP), tables(), path=path, seed=0)
    with replay.writer(items=[hr.ItemRule("t", 1), hr.ItemRule("q", 1)]) as writer:
        for steps in range(1, 7):
            for _ in range(steps):
                writer.append({**STEP, "reward": float(steps)})
            writer.end_episode({"observation": np.ones(2)})
        writer.append(STEP)
    batch = replay.sample("t", 4)
    replay.update_priorities("t", batch.info.keys, np.arange(4.0))
    return replay


def contents(folder):
    """Each file: when it was changed and what it holds, which of sparse files is little."""
    found = {}
    for path in sorted(folder.iterdir()):
        with path.open("rb") as file:
            size = path.stat().st_size
            chunks, place = [], 0
            while place < size:
                try:
                    place = os.lseek(file.fileno(), place, os.SEEK_DATA)
                except OSError:
                    break
                end = os.lseek(file.fileno(), place, os.SEEK_HOLE)
                chunks.append((place, os.pread(file.fileno(), end - place, place)))
                place = end
            found[path.name] = (size, path.stat().st_mtime_ns, chunks)
    return found


def lengths(episodes):
    return [len(episode) for episode in episodes]


def test_what_is_shown_is_what_opening_finds_and_nothing_changes(tmp_path):
    replay = filled(tmp_path / "store")
    expected = lengths(hr.datasets.episodes(replay))
    assert expected == [1, 2, 3, 4, 5, 6]
    replay.close()
    before = contents(tmp_path / "store")
    with StoredReplay(tmp_path / "store") as stored:
        found = hr.datasets.episodes(stored)
        assert lengths(found) == expected
        assert (found.left_out, stored.tables) == (1, {"t": 20, "q": 22})
        assert [each.return_ for each in hr.datasets.episodes(stored)] == [n * n for n in expected]
    assert contents(tmp_path / "store") == before
    with pytest.raises(hr.Closed):
        hr.datasets.episodes(stored)
    with hr.Replay(hr.Signature.like(STEP), tables(), path=tmp_path / "store") as again:
        assert lengths(hr.datasets.episodes(again)) == expected


KILLED = """
    import os, sys
    sys.path.insert(0, sys.argv[1])
    from test_stored import filled
    filled(sys.argv[2])
    os._exit(9)
"""


def test_a_store_whose_process_was_killed(tmp_path):
    code = textwrap.dedent(KILLED)
    folder = os.path.dirname(__file__)
    subprocess.run([sys.executable, "-c", code, folder, str(tmp_path / "store")], check=False, timeout=120)
    before = contents(tmp_path / "store")
    assert "closed.json" not in before
    with StoredReplay(tmp_path / "store") as stored:
        assert lengths(hr.datasets.episodes(stored)) == [1, 2, 3, 4, 5, 6]
    assert contents(tmp_path / "store") == before


def test_a_store_that_has_to_go_back_is_opened_first(tmp_path, monkeypatch):
    """D3: after the machine failed its files hold some changes and not others."""
    replay = filled(tmp_path / "store")
    with replay.writer() as writer:
        writer.flush(durable=True)
    replay.close()
    with monkeypatch.context() as other_boot:
        other_boot.setattr(store_files, "boot_id", lambda: 7)
        with StoredReplay(tmp_path / "store") as stored:  # It was closed orderly.
            assert lengths(hr.datasets.episodes(stored)) == [1, 2, 3, 4, 5, 6]
        (tmp_path / "store" / "closed.json").unlink()
        with pytest.raises(hr.CheckpointError, match="open it once with hr.Replay"):
            StoredReplay(tmp_path / "store")
    with StoredReplay(tmp_path / "store") as stored:  # Its process was killed.
        assert lengths(hr.datasets.episodes(stored)) == [1, 2, 3, 4, 5, 6]


def test_a_flipped_bit_of_a_closed_store_is_noticed(tmp_path):
    filled(tmp_path / "store").close()
    [items] = (tmp_path / "store").glob("items-0-*")
    with items.open("r+b") as file:
        content = file.read()
        place = content.index(np.float64(3.0).tobytes())
        file.seek(place)
        file.write(np.float64(6.0).tobytes())
    with pytest.raises(hr.CheckpointError, match="items-0-"):
        StoredReplay(tmp_path / "store")


def test_a_store_in_use_is_refused_and_left_alone(tmp_path):
    replay = filled(tmp_path / "store")
    with pytest.raises(hr.CheckpointError, match="in use"):
        StoredReplay(tmp_path / "store")
    replay.close()
    with StoredReplay(tmp_path / "store"), StoredReplay(tmp_path / "store"):
        with pytest.raises(hr.CheckpointError, match="in use"):
            hr.Replay(hr.Signature.like(STEP), tables(), path=tmp_path / "store")


@pytest.mark.parametrize("name", ["rows", "index", "header", "items", "manifest.json"])
def test_a_damaged_store_is_named_and_can_be_looked_at_again(tmp_path, name):
    filled(tmp_path / "store").close()
    [path] = [each for each in (tmp_path / "store").iterdir() if each.name.startswith(name)][:1]
    with path.open("r+b") as file:
        file.truncate(40)
    for _ in range(2):
        with pytest.raises(hr.CheckpointError, match=path.name):
            StoredReplay(tmp_path / "store")


def test_inspect_and_export(tmp_path):
    filled(tmp_path / "store").close()
    done = CliRunner().invoke(main, ["inspect", str(tmp_path / "store"), "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.output)
    assert (told["kind"], told["episodes"], told["steps"], told["left_out"]) == ("store", 6, 21, 1)
    assert told["tables"] == {"t": 20, "q": 22}
    assert 0 < told["metadata"]["bytes_on_disk"] < told["metadata"]["bytes_shown"]
    assert "20 items" in CliRunner().invoke(main, ["inspect", str(tmp_path / "store")]).output
    out = str(tmp_path / "x.npz")
    done = CliRunner().invoke(main, ["export", str(tmp_path / "store"), "--to", "npz", "--out", out])
    assert done.exit_code == 0, done.output
    with hr.datasets.load_npz(out) as exported:
        assert lengths(exported) == [1, 2, 3, 4, 5, 6]
        assert exported.metadata == {}  # The sizes are those of the store's files.
