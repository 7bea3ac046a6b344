"""Datasets of other tools in `headrace export` and `headrace inspect` (datasets X2, X3)."""

import json

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import headrace as hr
from headrace.cli import main
from headrace.datasets import load_d4rl, load_npz


@pytest.fixture
def d4rl(tmp_path):
    path = tmp_path / "walker.hdf5"
    with h5py.File(path, "w") as file:
        for name in ("observations", "next_observations", "actions"):
            file[name] = np.zeros((4, 2), np.float32)
        file["rewards"] = np.ones(4, np.float32)
        file["terminals"] = np.array([0, 1, 0, 0], bool)
        file["timeouts"] = np.array([0, 0, 0, 1], bool)
        file["metadata/algorithm"] = b"SAC"
        file["metadata/policy/fc0/weight"] = np.eye(2)
    return path


@pytest.fixture
def lerobot(tmp_path):
    folder = tmp_path / "push"
    (folder / "data/chunk-000").mkdir(parents=True)
    (folder / "meta").mkdir()
    features = {name: {"dtype": "float32", "shape": [1]} for name in ("observation.state", "action")}
    info = {"codebase_version": "v3.0", "robot_type": None, "fps": 10.0, "features": features}
    (folder / "meta/info.json").write_text(json.dumps(info))
    frames = {
        "observation.state": [0.0, 1.0, 2.0],
        "action": [0.0, 1.0, 2.0],
        "episode_index": [0, 0, 0],
        "next.reward": [0.0, 0.0, 1.0],
        "next.done": [False, False, True],
    }
    pq.write_table(pa.table(frames), folder / "data/chunk-000/file-000.parquet")
    return folder


def command(*arguments):
    done = CliRunner().invoke(main, list(map(str, arguments)))
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize(("name", "episodes", "steps"), [("d4rl", 2, 4), ("lerobot", 1, 3)])
def test_export_and_inspect(tmp_path, request, name, episodes, steps):
    source = request.getfixturevalue(name)
    result = json.loads(command("export", source, "--to", "npz", "--out", tmp_path / "x", "--json"))
    assert (result["episodes"], result["steps"], result["terminated"]) == (episodes, steps, 1)
    with load_npz(tmp_path / "x") as dataset:
        assert (len(dataset), dataset.total_steps) == (episodes, steps)
        assert dataset.metadata["algorithm" if name == "d4rl" else "fps"] in ("SAC", 10.0)
    assert json.loads(command("inspect", source, "--json"))["kind"] == name


@pytest.fixture
def old_d4rl(tmp_path):
    """A file that has neither next_observations nor timeouts."""
    path = tmp_path / "old.hdf5"
    with h5py.File(path, "w") as file:
        file["observations"], file["actions"] = np.arange(8.0).reshape(4, 2), np.zeros((4, 2))
        file["rewards"], file["terminals"] = np.ones(4), np.array([0, 1, 0, 0], bool)
    return path


def test_what_an_old_file_lacks_is_given_by_options(tmp_path, old_d4rl):
    options = ("--missing-final", "repeat", "--max-episode-steps", "2")
    found = json.loads(command("inspect", old_d4rl, *options, "--json"))
    assert [(row["length"], row["terminated"]) for row in found["contents"]] == [(2, True), (1, False)]
    command("export", old_d4rl, *options, "--to", "npz", "--out", tmp_path / "x")
    with (
        load_npz(tmp_path / "x") as dataset,
        load_d4rl(old_d4rl, missing_final="repeat", max_episode_steps=2) as read,
    ):
        assert dataset[:] == read[:]


def test_an_old_file_without_options_is_refused(old_d4rl):
    done = CliRunner().invoke(main, ["inspect", str(old_d4rl)])
    assert done.exit_code == 1
    assert "max_episode_steps" in done.output


@pytest.mark.parametrize(
    "options", [("--missing-final", "repeat"), ("--max-episode-steps", "3"), ("--missing-final", "no")]
)
def test_options_that_a_source_has_no_use_for_are_wrong_use(tmp_path, options):
    episode = hr.Episode([0.0, 1.0], [0], [1.0], [True], [False])
    path = hr.datasets.save_npz([episode], tmp_path / "x.npz")
    for arguments in (["inspect", path], ["export", path, "--to", "npz", "--out", tmp_path / "y"]):
        done = CliRunner().invoke(main, [*map(str, arguments), *options])
        assert done.exit_code == 2
        assert options[0] in done.output
    folder = tmp_path / "replay"
    folder.mkdir()
    assert CliRunner().invoke(main, ["inspect", str(folder), *options]).exit_code == 2
    assert CliRunner().invoke(main, ["inspect", "tcp://127.0.0.1:1", *options]).exit_code == 2
