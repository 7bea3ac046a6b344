"""What the DQN sees of environments."""

import click
import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from headrace.cli.dqn import problem


class Pixels(gymnasium.Env):
    """Frames full of the number of steps."""

    def __init__(self, shape=(40, 36)):
        self.observation_space = spaces.Box(0, 255, shape, np.uint8)
        self.action_space = spaces.Discrete(3, start=-1)
        self.at = 0

    def reset(self, *, seed=None, options=None):
        self.at = 0
        return np.full(self.observation_space.shape, 0, np.uint8), {}

    def step(self, action):
        self.at += 1
        return np.full(self.observation_space.shape, self.at, np.uint8), 1.0, self.at == 2, False, {}


@pytest.fixture
def registered():
    names = {"Grey-v0": (40, 36), "Colour-v0": (40, 36, 3), "Tiny-v0": (8, 8)}
    for name, shape in names.items():
        gymnasium.register(
            f"headrace_tests/{name}", lambda shape=shape: Pixels(shape), disable_env_checker=True
        )
    yield
    for name in names:
        del gymnasium.registry[f"headrace_tests/{name}"]


def test_a_vector_environment():
    found = problem.describe("CartPole-v1")
    assert (found.observation, found.is_image, found.num_actions, found.first_action) == ((4,), False, 2, 0)
    assert found.reward_threshold == 475.0


def test_discrete_observations_become_vectors():
    found = problem.describe("FrozenLake-v1")
    assert (found.observation, found.is_image, found.num_actions) == ((16,), False, 4)


def test_frames_mark_the_first_of_an_episode(registered):
    found = problem.describe("headrace_tests/Grey-v0")
    assert (found.observation, found.is_image, found.num_actions, found.first_action) == (
        (40, 36),
        True,
        3,
        -1,
    )
    env = problem.make("headrace_tests/Grey-v0")
    seen = []
    for _ in range(2):
        observation, _ = env.reset()
        while True:
            assert env.observation_space.contains(observation)
            seen.append((int(observation["frame"][0, 0]), int(observation["first"])))
            observation, _, terminated, _, _ = env.step(0)
            if terminated:
                seen.append((int(observation["frame"][0, 0]), int(observation["first"])))
                break
    assert seen == [(0, 1), (1, 0), (2, 0)] * 2


@pytest.mark.parametrize(
    ("env_id", "told"),
    [
        ("Pendulum-v1", "Discrete action space"),
        ("NoSuchGame-v0", "NoSuchGame"),
        ("headrace_tests/Colour-v0", "grey images"),
        ("headrace_tests/Tiny-v0", "36 pixels"),
    ],
)
def test_what_a_dqn_cannot_learn_is_wrong_use(registered, env_id, told):
    with pytest.raises(click.BadParameter, match=told):
        problem.describe(env_id)


def test_atari():
    pytest.importorskip("ale_py")
    pytest.importorskip("cv2")
    found = problem.describe("ALE/Pong-v5")
    assert (found.observation, found.is_image, found.num_actions) == ((84, 84), True, 6)
