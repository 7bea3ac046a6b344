"""`headrace export` (datasets X2)."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

import headrace as hr
from headrace.cli import main
from headrace.datasets import load_minari, load_npz, load_parquet, save_minari, save_npz


def export(*arguments):
    return CliRunner().invoke(main, ["export", *map(str, arguments)])


def episode(steps, terminated=True, truncated=False, **more):
    end = np.arange(steps) == steps - 1
    return hr.Episode(
        np.arange(steps + 1.0), np.arange(steps), np.ones(steps), end & terminated, end & truncated, **more
    )


EPISODES = [episode(3, seed=4), episode(2, False, True), episode(4, True, True), episode(1, False, False)]


@pytest.fixture
def source(tmp_path):
    return save_npz(EPISODES, tmp_path / "source", metadata={"by": "me"})


def test_to_parquet_and_back_to_npz(tmp_path, source):
    done = export(source, "--to", "parquet", "--out", tmp_path / "x.parquet", "--json")
    assert done.exit_code == 0, done.output
    result = json.loads(done.output)
    assert result.pop("seconds") >= 0
    assert result == {
        "source": str(source),
        "path": str(tmp_path / "x.parquet"),
        "episodes": 4,
        "steps": 10,
        "terminated": 2,
        "truncated": 2,
        "unfinished": 1,
        "left_out": 0,
    }
    with load_parquet(tmp_path / "x.parquet") as dataset:
        assert list(dataset) == EPISODES
        assert dataset.metadata == {"by": "me"}
    done = export(tmp_path / "x.parquet", "--to", "npz", "--out", tmp_path / "again")
    assert done.exit_code == 0, done.output
    assert str(tmp_path / "again.npz") in done.output.replace("\n", "")
    assert list(load_npz(tmp_path / "again")) == EPISODES


def test_to_minari_by_its_id_and_out_of_it(tmp_path, monkeypatch):
    pytest.importorskip("h5py")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    finished = EPISODES[:3]
    source = save_npz(finished, tmp_path / "source")
    done = export(source, "--to", "minari", "--id", "demo/line-v0")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "minari" / "demo" / "line-v0" / "data").is_dir()
    for name in ("demo/line-v0", tmp_path / "minari" / "demo" / "line-v0"):
        done = export(name, "--to", "npz", "--out", tmp_path / "back", "--overwrite")
        assert done.exit_code == 0, done.output
        assert [each.observations.tolist() for each in load_npz(tmp_path / "back")] == [
            each.observations.tolist() for each in finished
        ]


def test_from_minari_to_minari_keeps_the_spaces(tmp_path):
    pytest.importorskip("h5py")
    from gymnasium.spaces import Box, Discrete

    space = Box(0.0, 10.0, (), np.float64)
    save_minari(EPISODES[:3], "a-v0", root=tmp_path, observation_space=space, action_space=Discrete(9))
    done = export(tmp_path / "a-v0", "--to", "minari", "--id", "b-v0", "--out", tmp_path)
    assert done.exit_code == 0, done.output
    with load_minari("b-v0", root=tmp_path) as dataset:
        assert dataset.observation_space == space
        assert dataset.action_space == Discrete(9)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--to", "npz"], "--out"),
        (["--to", "parquet"], "--out"),
        (["--to", "npz", "--out", "x", "--id", "a-v0"], "--id is for --to minari"),
        (["--to", "minari"], "--id"),
        (["--to", "minari", "--id", "line"], "line-v0"),
        (["--to", "csv", "--out", "x"], "--to"),
        (["--out", "x"], "--to"),
    ],
)
def test_wrong_use_is_2(source, arguments, told):
    done = export(source, *arguments)
    assert done.exit_code == 2
    assert told in done.output


@pytest.mark.parametrize("name", ["nothing.npz", "no/such-v3"])
def test_a_source_that_is_not_there_is_2(tmp_path, monkeypatch, name):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    done = export(name, "--to", "npz", "--out", tmp_path / "x")
    assert done.exit_code == 2
    assert name in done.output.replace("\n", "")


def test_a_failure_is_1_and_leaves_nothing(tmp_path, source):
    target = save_npz([episode(2)], tmp_path / "there.npz")
    done = export(source, "--to", "npz", "--out", target)
    assert (done.exit_code, "--overwrite" in done.output) == (1, True)
    assert list(load_npz(target)) == [episode(2)]
    assert export(source, "--to", "npz", "--out", target, "--overwrite").exit_code == 0
    assert list(load_npz(target)) == EPISODES
    source.write_bytes(source.read_bytes()[:-50])
    (tmp_path / "text").write_text("hello")
    (tmp_path / "folder").mkdir()
    before = sorted(tmp_path.iterdir())
    for name in ("source.npz", "text", "folder"):
        done = export(tmp_path / name, "--to", "npz", "--out", tmp_path / "new")
        assert done.exit_code == 1
        assert done.output.startswith("Error: ")
        assert str(tmp_path / name) in done.output.replace("\n", "")
    assert sorted(tmp_path.iterdir()) == before


def test_a_saved_replay(tmp_path):
    """Datasets X2: the complete episodes, and how many were left out."""
    step = {"observation": 0.0, "action": 0, "reward": 1.0, "terminated": False, "truncated": False}
    out = ("--to", "npz", "--out", tmp_path / "x", "--json")
    with hr.Replay(hr.Signature.like(step), [hr.Table.queue("t", 100)]) as replay:
        with replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
            writer.append(step)
            writer.flush()
            replay.save(tmp_path / "early")
            writer.end_episode({"observation": 1.0})
            writer.append(step)
        replay.save(tmp_path / "run")
    failed = export(tmp_path / "early", *out)
    assert failed.exit_code == 1
    assert "at least one episode" in failed.output
    done = export(tmp_path / "run", *out)
    assert done.exit_code == 0, done.output
    result = json.loads(done.output)
    assert (result["episodes"], result["steps"], result["left_out"]) == (1, 1, 1)
    with load_npz(tmp_path / "x") as dataset:
        assert dataset[0].observations.tolist() == [0, 1]


def test_what_a_person_sees(tmp_path, source):
    done = export(source, "--to", "parquet", "--out", tmp_path / "x.parquet")
    for word in ("npz to parquet", "episodes", "steps", "terminated", "truncated", "left out", "written to"):
        assert word in done.output
