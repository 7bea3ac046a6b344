"""`headrace play`, and `headrace collect` with a trained policy."""

import json
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from click.testing import CliRunner

import headrace as hr
from headrace.cli import main

torch = pytest.importorskip("torch")

from headrace.cli.dqn import checkpoint  # noqa: E402 - needs torch
from headrace.cli.dqn.network import NetworkShape  # noqa: E402
from headrace.cli.dqn.policy import EpsilonGreedy  # noqa: E402


@pytest.fixture
def policy(tmp_path):
    """A policy for CartPole that pushes to the side to which the pole leans."""
    made = EpsilonGreedy(NetworkShape((4,), num_actions=2, hidden_units=4), first_action=0, epsilon=0.5)
    with torch.no_grad():
        for parameter in made.network.parameters():
            parameter.zero_()
        first, *_, last = (each for each in made.network.modules() if isinstance(each, torch.nn.Linear))
        for inner in list(made.network.modules()):
            if isinstance(inner, torch.nn.Linear) and inner is not first and inner is not last:
                inner.weight.copy_(torch.eye(*inner.weight.shape))
        first.weight[0, 2:] = torch.tensor([1.0, 0.5])
        first.weight[1, 2:] = torch.tensor([-1.0, -0.5])
        last.weight[1, 0] = last.weight[0, 1] = 1.0
    path = tmp_path / "policy.pt"
    checkpoint.save(path, made, {"result": {"environment": "CartPole-v1"}})
    return path


def invoke(*arguments):
    return CliRunner().invoke(main, [str(each) for each in arguments])


def played(*arguments):
    done = invoke("play", *arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.output)


def plain_episode(policy, seed):
    """The return of an episode, by a loop without Headrace."""
    act = checkpoint.load(policy)
    env = gymnasium.make("CartPole-v1")
    observation, _ = env.reset(seed=seed)
    total, over = 0.0, False
    while not over:
        action = act(torch.as_tensor(observation)[None])
        observation, reward, terminated, truncated, _ = env.step(int(action[0]))
        total, over = total + reward, terminated or truncated
    env.close()
    return total


def test_it_plays_greedily_on_the_environment_of_the_training(policy):
    result = played(policy, "--episodes", 3, "--seed", 5)
    assert result["environment"] == "CartPole-v1"
    assert result["returns"] == [plain_episode(policy, seed) for seed in (5, 6, 7)]
    assert result["return"]["mean"] == np.mean(result["returns"]) > 100, "the pole leans and is pushed back"


def test_epsilon_makes_it_worse_and_repeats_by_seed(policy):
    result = played(policy, "--episodes", 3, "--epsilon", 1.0)
    assert result["return"]["mean"] < 80
    assert played(policy, "--episodes", 3, "--epsilon", 1.0)["returns"] == result["returns"]


def test_it_shows_a_table(policy):
    done = invoke("play", policy, "--episodes", 2)
    assert done.exit_code == 0
    assert "CartPole-v1: 2 episodes" in done.output
    assert "truncated" in done.output or "terminated" in done.output


def test_an_environment_that_does_not_fit_is_refused_with_both_shapes(policy):
    done = invoke("play", policy, "--env", "Acrobot-v1")
    assert done.exit_code == 2
    assert "observations of shape [4] and 2 actions from 0 on; Acrobot-v1 has [6] and 3" in done.output


def test_a_file_that_is_no_policy_is_a_failure(tmp_path):
    path = tmp_path / "policy.pt"
    path.write_bytes(b"no")
    done = invoke("play", path)
    assert done.exit_code == 1
    assert "not a policy of headrace train" in done.output


def test_videos_need_moviepy(policy, tmp_path, monkeypatch):
    def refuse(*arguments, **options):
        raise gymnasium.error.DependencyNotInstalled("MoviePy is not installed")

    monkeypatch.setattr(gymnasium.wrappers, "RecordVideo", refuse)
    done = invoke("play", policy, "--video", tmp_path / "video")
    assert done.exit_code == 1
    assert 'pip install "headrace[video]"' in done.output
    assert not (tmp_path / "video").exists()


def test_a_library_to_draw_with_that_is_missing_is_named_and_leaves_nothing(policy, tmp_path, monkeypatch):
    class Recorded(gymnasium.Wrapper):
        def __init__(self, env, *arguments, **options):
            super().__init__(env)

        def reset(self, **options):
            raise gymnasium.error.DependencyNotInstalled("pygame is not installed")

    monkeypatch.setattr(gymnasium.wrappers, "RecordVideo", Recorded)
    done = invoke("play", policy, "--video", tmp_path / "video")
    assert done.exit_code == 1
    assert done.output == (
        'Error: ImportError: videos of CartPole-v1 need libraries: pip install "headrace[video]" '
        "(pygame is not installed)\n"
    )
    assert not (tmp_path / "video").exists()


def test_every_episode_is_recorded_into_the_folder(policy, tmp_path, monkeypatch):
    class Recorded(gymnasium.Wrapper):
        def __init__(self, env, folder, *, episode_trigger, name_prefix):
            super().__init__(env)
            assert env.render_mode == "rgb_array"
            assert all(map(episode_trigger, range(10)))
            self.folder, self.prefix, self.count = Path(folder), name_prefix, 0

        def reset(self, **options):
            (self.folder / f"{self.prefix}-episode-{self.count}.mp4").touch()
            self.count += 1
            return super().reset(**options)

    monkeypatch.setattr(gymnasium.wrappers, "RecordVideo", Recorded)
    folder = tmp_path / "video"
    assert played(policy, "--episodes", 2, "--video", folder)["video"] == str(folder)
    assert sorted(path.name for path in folder.iterdir()) == [
        "play-episode-0.mp4",
        "play-episode-1.mp4",
        "run.json",
    ]
    done = invoke("play", policy, "--episodes", 2, "--video", folder)
    assert done.exit_code == 1
    assert "play-episode-0.mp4" in done.output
    assert "--overwrite" in done.output


def test_collect_acts_with_a_trained_policy(policy, tmp_path):
    out = tmp_path / "expert"
    arguments = ["collect", "CartPole-v1", "--steps", 600, "--workers", 0, "--num-envs", 1, "--seed", 3]
    done = invoke(*arguments, "--policy", policy, "--out", out, "--json")
    assert done.exit_code == 0, done.output
    with hr.datasets.load_npz(out / "episodes.npz") as episodes:
        first = episodes[0]
        act = checkpoint.load(policy)
        greedy = act(torch.as_tensor(first.observations[:-1])).numpy()
        np.testing.assert_array_equal(first.actions, greedy)


def test_collect_refuses_a_policy_that_does_not_fit(policy):
    done = invoke("collect", "Acrobot-v1", "--steps", 10, "--policy", policy)
    assert done.exit_code == 2
    assert "Acrobot-v1 has [6] and 3" in done.output
