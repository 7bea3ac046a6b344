"""`headrace collect`."""

import csv
import json
import signal

import gymnasium
import numpy as np
import pytest
from click.testing import CliRunner

from headrace.cli import environments, main
from headrace.cli.collect import run as collect_run
from headrace.datasets import load_minari, load_npz


def collect(*arguments):
    return CliRunner().invoke(main, ["collect", *arguments])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["NoSuchGame-v0", "--steps", "10"], "NoSuchGame"),
        (["CartPole-v1", "--steps", "0"], "--steps"),
        (["CartPole-v1", "--steps", "10", "--workers", "-1"], "--workers"),
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


def test_a_callable_is_not_an_id(tmp_path, monkeypatch):
    # `headrace doctor` takes both, so one that was examined is given here next.
    (tmp_path / "callable_envs.py").write_text("def make():\n    pass\n")
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["collect", "callable_envs:make", "--steps", "10"])
    assert done.exit_code == 2
    told = (
        "got the callable make of callable_envs; register it, as in gymnasium.register('My-v0', entry_point="
    )
    assert told in " ".join(done.output.split())


def test_ctrl_c_while_the_files_are_written_does_not_lose_them(tmp_path, monkeypatch):
    write = collect_run._write_table

    def interrupted(path, log):
        signal.raise_signal(signal.SIGINT)
        write(path, log)

    monkeypatch.setattr(collect_run, "_write_table", interrupted)
    done = collect("CartPole-v1", "--steps=64", "--workers=0", f"--out={tmp_path}")
    assert done.exit_code == 0, done.output
    assert "writing what was collected; Ctrl-C again gives it up" in done.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["episodes.csv", "episodes.npz", "run.json"]


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
    assert frames == 500
    with load_npz(out / "episodes.npz") as dataset:
        assert dataset.total_steps == frames
        assert dataset.metadata == {
            **environments.metadata("CartPole-v1"),
            "environment": "CartPole-v1",
            "policy": "random",
            "seed": 3,
        }
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


def test_equal_seeds_collect_the_same_with_any_number_of_workers(tmp_path):
    def episodes(workers, num_envs):
        out = tmp_path / str(workers)
        done = collect(
            "CartPole-v1", "--steps=256", f"--num-envs={num_envs}", "--seed=5", f"--workers={workers}", "--json",
            f"--out={out}",
        )  # fmt: skip
        assert done.exit_code == 0, done.output
        assert json.loads(done.output)["frames"] == 256
        return load_npz(out / "episodes.npz")

    with episodes(0, 4) as inline:
        for workers in (1, 2):
            with episodes(workers, 4 // workers) as found:
                assert len(inline) == len(found)
                for one, other in zip(inline, found, strict=True):
                    one.id = other.id  # collectors CS5
                    assert one == other


def test_what_was_collected_can_be_inspected(tmp_path):
    done = collect(
        "CartPole-v1", "--steps", "256", "--seed", "0", "--workers", "0", "--json", "--out", str(tmp_path)
    )
    assert done.exit_code == 0, done.output
    shown = CliRunner().invoke(main, ["inspect", str(tmp_path / "episodes.npz"), "--json"])
    assert shown.exit_code == 0, shown.output
    told, result = json.loads(shown.output), json.loads(done.output)
    assert (told["steps"], told["terminated"] + told["truncated"]) == (result["frames"], result["episodes"])
    assert told["metadata"]["environment"] == "CartPole-v1"
    # Episodes under way are told apart by both, and returns are those of the episodes that ended.
    assert told["unfinished"] == result["unfinished"] > 0
    assert told["episodes"] == result["episodes"] + result["unfinished"]
    assert told["return"] == pytest.approx(result["return"])
    assert told["length"] == pytest.approx(result["length"])
    # The folder stands for the dataset in it.
    folder = json.loads(CliRunner().invoke(main, ["inspect", str(tmp_path), "--json"]).output)
    assert told["run"] is None
    assert folder == {**told, "path": str(tmp_path), "run": folder["run"]}
    assert folder["run"]["seed"] == 0


@pytest.mark.parametrize(
    ("steps", "num_envs"), [(1, 8), (3, 8), (8, 8), (100, 8), (520, 8), (1001, 3), (129, 1)]
)
def test_as_many_steps_as_were_asked_for(tmp_path, steps, num_envs):
    done = collect(
        "CartPole-v1",
        f"--steps={steps}",
        f"--num-envs={num_envs}",
        "--workers=0",
        "--json",
        f"--out={tmp_path}",
    )
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["frames"] == steps
    with load_npz(tmp_path / "episodes.npz") as dataset:
        assert dataset.total_steps == steps
        # The order of their beginnings, in which the collector numbers them.
        ids = [episode.id for episode in dataset]
        assert ids == sorted(ids)


def test_what_an_earlier_run_left_is_replaced_only_when_asked(tmp_path):
    def run(*more):
        return collect("CartPole-v1", "--steps=200", "--workers=0", "--json", f"--out={tmp_path}", *more)

    assert run("--seed=1").exit_code == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert set(before) == {"episodes.npz", "episodes.csv", "run.json"}
    refused = run("--seed=2")
    assert refused.exit_code == 1
    assert "episodes.npz" in refused.output
    assert "--overwrite" in refused.output
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert run("--seed=2", "--overwrite").exit_code == 0
    assert (tmp_path / "episodes.npz").read_bytes() != before["episodes.npz"]
    (tmp_path / "episodes.npz").unlink()
    assert "episodes.csv" in run().output


POLICIES = """
import numpy as np
def interrupted():
    calls = []
    def act(observation):
        calls.append(1)
        if len(calls) == 101:
            raise KeyboardInterrupt
        return np.zeros(len(observation), np.int64)
    return act
def broken():
    raise OSError("no such weights")
"""


@pytest.fixture
def policies(tmp_path, monkeypatch):
    (tmp_path / "user_policies.py").write_text(POLICIES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


def test_ctrl_c_keeps_and_tells_what_was_collected(policies, tmp_path):
    done = collect(
        "CartPole-v1", "--steps=100000", "--num-envs=4", "--workers=0", "--policy=user_policies:interrupted",
        "--out=out",
    )  # fmt: skip
    assert done.exit_code == 1
    assert "Aborted!" not in done.output
    assert "Aborted by Ctrl-C after 256 of 100000 frames; what was collected is in out" in done.output
    assert "written to out: episodes.npz, episodes.csv" in done.output
    with load_npz(tmp_path / "out" / "episodes.npz") as dataset:
        assert dataset.total_steps == 256


def test_ctrl_c_before_the_first_batch_leaves_nothing(policies, tmp_path):
    done = collect(
        "CartPole-v1", "--steps=200", "--num-envs=1", "--workers=0", "--policy=user_policies:interrupted",
        "--out=out", "--json",
    )  # fmt: skip
    # 200 steps are four batches of 50; the 101st step is in the third.
    assert "Aborted by Ctrl-C after 100 of 200 frames" in done.output
    assert (tmp_path / "out").exists()
    done = collect(
        "CartPole-v1",
        "--steps=6400",
        "--num-envs=1",
        "--workers=0",
        "--policy=user_policies:broken",
        "--out=new",
    )
    assert isinstance(done.exception, OSError)
    assert not (tmp_path / "new").exists()


def test_minari_gets_the_environment_and_its_bounds(tmp_path):
    pytest.importorskip("h5py")
    assert collect("CartPole-v1", "--steps=100", "--workers=0", "--json", f"--out={tmp_path}").exit_code == 0
    to_minari = ["--to", "minari", "--id", "pole-v0", "--out", str(tmp_path / "minari")]
    parquet = tmp_path / "x.parquet"
    runner = CliRunner()
    done = runner.invoke(main, ["export", str(tmp_path), *to_minari])
    assert done.exit_code == 0, done.output
    # By way of other formats too.
    assert (
        runner.invoke(main, ["export", str(tmp_path), "--to", "parquet", "--out", str(parquet)]).exit_code
        == 0
    )
    done = runner.invoke(main, ["export", str(parquet), *to_minari, "--overwrite"])
    assert done.exit_code == 0, done.output
    with load_minari("pole-v0", root=tmp_path / "minari") as dataset, gymnasium.make("CartPole-v1") as env:
        assert json.loads(dataset.metadata["env_spec"])["id"] == "CartPole-v1"
        assert dataset.observation_space == env.observation_space
        assert dataset.action_space == env.action_space


OUTSIDE = """
import gymnasium, numpy as np
class Outside(gymnasium.Env):
    observation_space = gymnasium.spaces.Dict({"x": gymnasium.spaces.Box(-1, 1, (2,), np.float32)})
    action_space = gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        return {"x": np.zeros(2, np.float32)}, {}
    def step(self, action):
        return {"x": np.full(2, 7, np.float32)}, 1.0, False, False, {}
gymnasium.register("Outside-v0", Outside)
"""


@pytest.mark.filterwarnings("ignore:.*not within the observation space")
def test_an_environment_that_leaves_its_bounds_is_exported_without_them(tmp_path, monkeypatch):
    pytest.importorskip("h5py")
    (tmp_path / "leaves_bounds.py").write_text(OUTSIDE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    done = collect("leaves_bounds:Outside-v0", "--steps=20", "--workers=0", "--json", "--out=out")
    assert done.exit_code == 0, done.output
    done = CliRunner().invoke(main, ["export", "out", "--to=minari", "--id=out-v0", "--out=minari"])
    assert done.exit_code == 0, done.output
    assert "Warning: " in done.output
    assert "without bounds" in done.output
    with load_minari("out-v0", root=tmp_path / "minari") as dataset:
        box = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
        assert dataset.observation_space == gymnasium.spaces.Dict({"x": box})
        assert len(dataset) == 8


def test_progress_goes_to_standard_error(policies):
    done = collect("CartPole-v1", "--steps=100", "--workers=0", "--json")
    assert json.loads(done.stdout)["frames"] == 100
    assert done.stderr == ""


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
