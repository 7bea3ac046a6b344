"""Algorithms of SB3 train on our buffer, unchanged: as on their own buffer, number for number."""

import gymnasium
import numpy as np
import pytest
import torch
from stable_baselines3 import DQN, SAC, TD3
from stable_baselines3.common.buffers import ReplayBuffer as Theirs
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.vec_env import VecFrameStack, VecNormalize

from headrace.integrations.sb3 import ReplayBuffer

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

SMALL = {"device": "cpu", "seed": 0, "learning_starts": 20, "batch_size": 16}


def make(algorithm, env, **options):
    """A model with a small net; some algorithms change the dict that they are given."""
    return algorithm("MlpPolicy", env, policy_kwargs={"net_arch": [16]}, **SMALL | options)


def weights(model):
    return {name: value.clone() for name, value in model.policy.state_dict().items()}


class Recording(ReplayBuffer):
    """Notes the observations of each batch."""

    drawn: list

    def sample(self, batch_size, env=None):
        batch = super().sample(batch_size, env)
        self.drawn.append([row.tobytes() for row in batch.observations.numpy()])
        return batch


class Replaying(Theirs):
    """SB3's buffer, which draws the transitions that a `Recording` drew."""

    drawn: list

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        np.random.randint(2**31)  # noqa: NPY002 - the seed of the other one
        self.places = {}

    def add(self, obs, *rest):
        for lane, row in enumerate(obs):
            self.places[row.tobytes()] = self.pos, lane
        super().add(obs, *rest)

    def sample(self, batch_size, env=None):
        places = np.array([self.places[row] for row in self.drawn.pop(0)])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(np.random, "randint", lambda *_, **__: places[:, 1])
            return self._get_samples(places[:, 0], env)


ALGORITHMS = {
    "DQN": lambda **options: make(DQN, make_vec_env("CartPole-v1", 2, seed=0), **options),
    "SAC": lambda **options: make(SAC, make_vec_env("Pendulum-v1", 2, seed=0), **options),
    "TD3": lambda **options: make(TD3, make_vec_env("Pendulum-v1", 2, seed=0), **options),
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_same_weights_from_the_same_draws(name):
    drawn, trained = [], []
    for kind in (Recording, Replaying):
        kind.drawn = drawn
        model = ALGORITHMS[name](replay_buffer_class=kind, buffer_size=200, train_freq=1)
        start = weights(model)
        model.learn(120)
        trained.append(weights(model))
    assert len(drawn) == 0
    assert model._n_updates > 30
    assert any((value != start[key]).any() for key, value in trained[0].items())
    for key, value in trained[0].items():
        assert torch.equal(value, trained[1][key]), key


@pytest.mark.parametrize("name", ALGORITHMS)
def test_n_step_and_prioritized(name):
    model = ALGORITHMS[name](
        replay_buffer_class=ReplayBuffer,
        replay_buffer_kwargs={"n_steps": 3, "gamma": 0.99, "priority_exponent": 0.6},
        buffer_size=60,
    )
    start = weights(model)
    model.learn(100)
    assert any((value != start[key]).any() for key, value in weights(model).items())
    assert model.replay_buffer.full


def test_training_starts_with_the_first_step():
    options = {"replay_buffer_class": ReplayBuffer, "replay_buffer_kwargs": {"n_steps": 5}}
    model = make(DQN, "CartPole-v1", train_freq=1, buffer_size=50, learning_starts=0, **options)
    model.learn(30)
    assert model._n_updates == 30


def test_optimize_memory_usage_and_learning_again():
    # SB3 writes to `dones` when `learn` begins again; time limits are handled all the same.
    model = ALGORITHMS["SAC"](replay_buffer_class=ReplayBuffer, optimize_memory_usage=True, buffer_size=500)
    model.learn(60)
    with pytest.warns(UserWarning, match="last trajectory in the replay buffer will be truncated"):
        model.learn(60)
    buffer = model.replay_buffer
    assert buffer.size() == 60
    buffer.cut_episodes()
    # Each call of learn leaves an episode in both environments.
    assert buffer.replay.statistics().store.rows == 2 * (60 + 2)


def test_save_and_load_with_a_model(tmp_path):
    model = ALGORITHMS["SAC"](replay_buffer_class=ReplayBuffer, buffer_size=200)
    model.learn(60)
    model.save(tmp_path / "model")
    model.save_replay_buffer(tmp_path / "buffer")
    other = SAC.load(tmp_path / "model", env=make_vec_env("Pendulum-v1", 2, seed=0), device="cpu")
    other.load_replay_buffer(tmp_path / "buffer")
    assert isinstance(other.replay_buffer, ReplayBuffer)
    assert other.replay_buffer.size() == model.replay_buffer.size() == 30
    # The generator is saved, too.
    for one, two in zip(model.replay_buffer.sample(50)[:5], other.replay_buffer.sample(50)[:5], strict=True):
        assert torch.equal(one, two)
    other.learn(40, reset_num_timesteps=False)
    assert other.replay_buffer.size() == 50


def test_normalized_environments_and_noise():
    env = VecNormalize(make_vec_env("Pendulum-v1", 2, seed=0))
    noise = NormalActionNoise(np.zeros(1), np.full(1, 0.1))
    options = {"replay_buffer_class": ReplayBuffer, "replay_buffer_kwargs": {"n_steps": 2}}
    model = make(TD3, env, action_noise=noise, buffer_size=200, **options)
    model.learn(60)
    assert model._n_updates > 0
    assert np.abs(model.replay_buffer.sample(50).observations.numpy()).max() > 2  # as they came


class Pictures(gymnasium.Env):
    """Small pictures and a number in a dict."""

    observation_space = gymnasium.spaces.Dict(
        {
            "picture": gymnasium.spaces.Box(0, 255, (36, 36, 1), np.uint8),
            "number": gymnasium.spaces.Box(-1, 1, (2,), np.float32),
        }
    )
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 1.0, bool(self.np_random.random() < 0.1), False, {}


def test_dicts_and_stacked_frames():
    env = VecFrameStack(make_vec_env(Pictures, 2, seed=0), 3)
    model = DQN(
        "MultiInputPolicy", env, replay_buffer_class=ReplayBuffer, buffer_size=60, device="cpu", seed=0,
        learning_starts=20, batch_size=4, policy_kwargs={"net_arch": [8]},
    )  # fmt: skip
    model.learn(32)
    assert model._n_updates > 0
    assert model.replay_buffer.sample(5).observations["picture"].shape == (5, 3, 36, 36)
