"""`headrace train`: wrong use, and a real training run."""

import csv
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

import headrace as hr
from headrace.cli import main
from headrace.cli.dqn import checkpoint
from headrace.cli.train import run as train_run


def train(*arguments):
    return CliRunner().invoke(main, ["train", *arguments])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["NoSuchGame-v0"], "NoSuchGame"),
        (["Pendulum-v1"], "Discrete"),
        (["CartPole-v1", "--seed", "-1"], "--seed"),
        (["CartPole-v1", "--num-envs", "0"], "--num-envs"),
        (["CartPole-v1", "--gamma", "2"], "--gamma"),
        (["CartPole-v1", "--batch-size", "0"], "--batch-size"),
        (["CartPole-v1", "--frame-stack", "2"], "--frame-stack is for images"),
    ],
)
def test_wrong_use_is_2_and_leaves_no_folder(tmp_path, arguments, told):
    done = train(*arguments, "--out", str(tmp_path / "out"))
    assert done.exit_code == 2, done.output
    assert told in done.output
    assert not (tmp_path / "out").exists()


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("steps", "num_envs", "frames"), [(100, 8, 96), (3, 8, 3), (13, 1, 13)])
def test_never_more_steps_than_were_asked_for(tmp_path, steps, num_envs, frames):
    done = train("CartPole-v1", f"--steps={steps}", f"--num-envs={num_envs}", "--json", f"--out={tmp_path}")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["frames"] == frames


@pytest.mark.timeout(120)
def test_ctrl_c_while_the_files_are_written_does_not_lose_them(tmp_path, monkeypatch):
    write = train_run._write

    def interrupted(*arguments):
        signal.raise_signal(signal.SIGINT)
        return write(*arguments)

    monkeypatch.setattr(train_run, "_write", interrupted)
    done = train("CartPole-v1", "--steps=64", "--json", f"--out={tmp_path}")
    assert done.exit_code == 0, done.output
    assert "writing what was learnt; Ctrl-C again gives it up" in done.stderr
    assert {"policy.pt", "episodes.csv"} <= {path.name for path in tmp_path.iterdir()}


@pytest.mark.timeout(120)
def test_what_an_earlier_run_left_is_replaced_only_when_asked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    short = ("CartPole-v1", "--steps=64", "--seed=3", "--json")
    for name in ("CartPole-v1-3", "CartPole-v1-3-2"):
        done = train(*short)
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["checkpoint"] == f"out/{name}/policy.pt"
    first = tmp_path / "out" / "CartPole-v1-3"
    before = {path.name: path.read_bytes() for path in first.iterdir()}
    assert set(before) == {"policy.pt", "learning-curve.png", "episodes.csv", "run.json"}
    refused = train(*short, f"--out={first}")
    assert refused.exit_code == 1
    assert "policy.pt, learning-curve.png, episodes.csv, run.json" in refused.output
    assert {path.name: path.read_bytes() for path in first.iterdir()} == before
    done = train(*short, f"--out={first}", "--overwrite")
    assert done.exit_code == 0, done.output
    assert sorted(path.name for path in first.iterdir()) == sorted(before)
    assert (first / "policy.pt").read_bytes() != before["policy.pt"]


def test_the_demo_can_be_run_twice():
    script = (Path(__file__).parents[2] / "scripts" / "demo").read_text()
    assert re.search(r"^exec headrace train .*--out out/demo --overwrite ", script, re.MULTILINE)


@pytest.mark.timeout(240)
def test_training_reaches_a_small_goal_and_its_policy_acts(tmp_path):
    threads = torch.get_num_threads()
    out = tmp_path / "run"
    done = train(
        "CartPole-v1", "--seed=1", "--goal=100", "--steps=100000", "--json", f"--out={out}",
        "--hidden-units=64", "--batch-size=64", "--samples-per-insert=16", "--epsilon-frames=5000",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    result = json.loads(done.output)
    assert result["goal_reached"]
    assert result["return_mean"] >= 100
    assert result["updates"] > 100
    # The table's gate held learner and worker together, and weights went back while frames came.
    assert result["samples_per_insert"] == pytest.approx(result["samples_per_insert_target"], rel=0.1)
    assert 0 <= result["policy_lag"] < result["updates"] / 100
    assert torch.get_num_threads() == threads

    with (out / "episodes.csv").open(newline="") as file:
        returns = [float(episode["return"]) for episode in csv.DictReader(file)]
    assert len(returns) == result["episodes"]
    assert np.mean(returns[-20:]) == pytest.approx(result["return_mean"])
    assert np.mean(returns[:20]) < 50  # It began as a random policy: it is training that got it there.
    assert (out / "learning-curve.png").read_bytes().startswith(b"\x89PNG")

    policy = checkpoint.load(out / "policy.pt")
    with hr.Collector("CartPole-v1", policy, frames_per_batch=8 * 500, num_envs=8, seed=1000) as collector:
        rows = next(iter(collector)).flatten()
    episodes = int((rows.terminated | rows.truncated).sum())
    # A random policy's episodes take 22 steps. The weights of one instant act worse or better than the last episodes.
    assert rows.frames / max(episodes, 1) > 45


@pytest.mark.timeout(120)
def test_ctrl_c_keeps_what_was_learnt(tmp_path):
    out = tmp_path / "run"
    code = "from headrace.cli import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", code, "train", "CartPole-v1", "--steps=10000000", "--goal=1000000", f"--out={out}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:  # fmt: skip
        try:
            # The first line of progress says that the run has begun. A word about a slow start may come before.
            assert any("return" in line for line in process.stdout)
            process.send_signal(signal.SIGINT)
            shown, _ = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 1, shown
    assert "Aborted by Ctrl-C after " in shown
    assert f"what was learnt is in {out}" in shown
    assert "Traceback" not in shown
    assert checkpoint.load(out / "policy.pt")(torch.zeros(2, 4)).shape == (2,)
    assert (out / "learning-curve.png").exists()


BROKEN = """
import gymnasium, numpy as np
class Broken(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    steps = 0
    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}
    def step(self, action):
        self.steps += 1
        if self.steps > 300:
            raise OSError("the sensor is unplugged")
        return np.zeros(2, np.float32), 1.0, self.steps % 10 == 0, False, {}
gymnasium.register("Broken-v0", Broken)
"""


@pytest.mark.timeout(120)
def test_a_failure_in_the_worker_is_1_and_keeps_what_was_learnt(tmp_path, monkeypatch):
    (tmp_path / "broken_sensor.py").write_text(BROKEN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    done = train("broken_sensor:Broken-v0", "--learning-starts", "200", "--out", "run", "--quiet")
    assert done.exit_code == 1, done.output
    assert "WorkerDied" in done.output
    assert "the sensor is unplugged" in done.output
    assert checkpoint.load(tmp_path / "run" / "policy.pt")(torch.zeros(1, 2)).shape == (1,)
