"""`headrace collect`."""

import csv
import json

import numpy as np
import pytest
from click.testing import CliRunner

from headrace.cli import main
from headrace.datasets import load_npz


def collect(*arguments):
    return CliRunner().invoke(main, ["collect", *arguments])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["NoSuchGame-v0", "--steps", "10"], "NoSuchGame"),
        (["CartPole-v1", "--steps", "0"], "--steps"),
        (["CartPole-v1", "--steps", "10", "--workers", "2"], "--workers"),
        (["CartPole-v1", "--steps", "10", "--num-envs", "0"], "--num-envs"),
        (["CartPole-v1", "--steps", "10", "--policy", "nobody"], "module:factory"),
        (["CartPole-v1", "--steps", "10", "--policy", "json:nothing"], "nothing"),
        (["CartPole-v1", "--steps", "10", "--policy", "json:__name__"], "not callable"),
    ],
)
def test_wrong_use_is_2(arguments, told):
    done = collect(*arguments)
    assert done.exit_code == 2
    assert told in done.output


def test_inline_into_files(tmp_path):
    out = tmp_path / "a" / "b"
    done = collect(
        "CartPole-v1",
        "--steps",
        "500",
        "--workers",
        "0",
        "--num-envs",
        "4",
        "--seed",
        "3",
        "--json",
        "--out",
        str(out),
    )
    assert done.exit_code == 0, done.output
    result = json.loads(done.output)
    frames = result["frames"]
    assert frames >= 500
    with load_npz(out / "episodes.npz") as dataset:
        assert dataset.total_steps == frames
        assert dataset.metadata == {"environment": "CartPole-v1", "policy": "random", "seed": 3}
        assert sum(episode.terminated or episode.truncated for episode in dataset) == result["episodes"] > 0
        lengths = {episode.id: len(episode) for episode in dataset}
        assert all(episode.observations.shape == (len(episode) + 1, 4) for episode in dataset)
        assert all(set(episode.extras) == {"policy_version"} for episode in dataset)
    with (out / "episodes.csv").open(newline="") as file:
        episodes = list(csv.DictReader(file))
    assert len(episodes) == result["episodes"]
    for episode in episodes:
        # CartPole pays 1 a step.
        assert float(episode["return"]) == int(episode["length"]) == lengths[int(episode["episode_id"])]
    returns = [float(episode["return"]) for episode in episodes]
    assert result["return"] == {
        "mean": pytest.approx(np.mean(returns)),
        "min": min(returns),
        "max": max(returns),
    }


def test_equal_seeds_collect_the_same_with_and_without_a_worker(tmp_path):
    for workers in ("0", "1"):
        done = collect(
            "CartPole-v1", "--steps", "256", "--num-envs", "4", "--seed", "5", "--workers", workers, "--json",
            "--out", str(tmp_path / workers),
        )  # fmt: skip
        assert done.exit_code == 0, done.output
    inline, worker = (load_npz(tmp_path / workers / "episodes.npz") for workers in ("0", "1"))
    with inline, worker:
        assert len(inline) == len(worker)
        for one, other in zip(inline, worker, strict=True):
            one.id = other.id  # collectors CS5
            assert one == other


def test_what_was_collected_can_be_inspected(tmp_path):
    done = collect("CartPole-v1", "--steps", "128", "--workers", "0", "--json", "--out", str(tmp_path))
    assert done.exit_code == 0, done.output
    shown = CliRunner().invoke(main, ["inspect", str(tmp_path / "episodes.npz"), "--json"])
    assert shown.exit_code == 0, shown.output
    told, result = json.loads(shown.output), json.loads(done.output)
    assert (told["steps"], told["terminated"] + told["truncated"]) == (result["frames"], result["episodes"])
    assert told["metadata"]["environment"] == "CartPole-v1"


def test_a_policy_of_the_users(tmp_path, monkeypatch):
    (tmp_path / "always_left.py").write_text(
        "import numpy as np\ndef make():\n    return lambda observation: np.zeros(len(observation), np.int64)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    done = collect(
        "CartPole-v1",
        "--steps",
        "64",
        "--workers",
        "0",
        "--policy",
        "always_left:make",
        "--json",
        "--out",
        "out",
    )
    assert done.exit_code == 0, done.output
    with load_npz(tmp_path / "out" / "episodes.npz") as dataset:
        assert not any(episode.actions.any() for episode in dataset)


def test_what_a_person_sees():
    done = collect("CartPole-v1", "--steps", "300", "--workers", "0")
    assert done.exit_code == 0, done.output
    for word in ("CartPole-v1", "episodes", "return", "length", "mean", "min", "max", "frames/s"):
        assert word in done.output
