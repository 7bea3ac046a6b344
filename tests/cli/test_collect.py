"""`headrace collect`."""

import csv
import json

import numpy as np
import pytest
from click.testing import CliRunner

from headrace.cli import main


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
    with np.load(out / "transitions.npz", allow_pickle=False) as columns:
        frames = result["frames"]
        assert frames >= 500
        assert {len(columns[name]) for name in columns} == {frames}
        assert columns["observation"].shape == (frames, 4)
        ended = columns["terminated"] | columns["truncated"]
        ids = columns["episode_id"]
        assert ended.sum() == result["episodes"] > 0
        with (out / "episodes.csv").open(newline="") as file:
            episodes = list(csv.DictReader(file))
        assert len(episodes) == result["episodes"]
        for episode in episodes:
            # CartPole pays 1 a step.
            assert (
                float(episode["return"])
                == int(episode["length"])
                == (ids == int(episode["episode_id"])).sum()
            )
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
    with (
        np.load(tmp_path / "0" / "transitions.npz") as inline,
        np.load(tmp_path / "1" / "transitions.npz") as worker,
    ):
        assert sorted(inline) == sorted(worker)
        for name in inline:
            if name != "episode_id":  # collectors CS5
                np.testing.assert_array_equal(inline[name], worker[name], err_msg=name)


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
    with np.load(tmp_path / "out" / "transitions.npz") as columns:
        assert not columns["action"].any()


def test_what_a_person_sees():
    done = collect("CartPole-v1", "--steps", "300", "--workers", "0")
    assert done.exit_code == 0, done.output
    for word in ("CartPole-v1", "episodes", "return", "length", "mean", "min", "max", "frames/s"):
        assert word in done.output
