"""What single environments are given: elements of their action space (collectors CE2, CP1)."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from headrace.envs import make_stepper, new_columns
from headrace.envs.columns import EnvironmentColumns
from headrace.envs.random_actions import RandomActions
from headrace.errors import SpecError

ACTION_SPACES = {
    "discrete": spaces.Discrete(3),
    "box": spaces.Box(-1, 1, (2,)),
    "scalar box": spaces.Box(-1, 1, ()),
    "multi-discrete": spaces.MultiDiscrete([2, 3]),
    "tree": spaces.Dict(
        grip=spaces.Discrete(2), arm=spaces.Tuple((spaces.Box(-1, 1, (3,)), spaces.Box(0, 1, ())))
    ),
}


class Recorder(gymnasium.Env[Any, Any]):
    """Keeps the actions it is given; a deep observation."""

    def __init__(self, action_space):
        self.action_space = action_space
        leaf = spaces.Box(0, 100, (1,))
        self.observation_space = spaces.Dict(
            z=leaf, a=spaces.Tuple((leaf, spaces.Dict(b=spaces.Discrete(100))))
        )
        self.actions: list[Any] = []

    def observe(self):
        n = len(self.actions)
        return {"z": np.full(1, n, np.float32), "a": (np.full(1, n + 1, np.float32), {"b": n + 2})}

    def reset(self, *, seed=None, options=None):
        return self.observe(), {}

    def step(self, action):
        self.actions.append(action)
        return self.observe(), 0.0, False, False, {}


@pytest.mark.parametrize("active", [None, [0, 2]])
@pytest.mark.parametrize("name", ACTION_SPACES)
def test_each_copy_gets_its_own_action(name, active):
    """CE2: row i of the actions goes to copy i, as an element of the space; trees go by path both ways."""
    space = ACTION_SPACES[name]
    stepper = make_stepper(lambda: Recorder(space), num_envs=3)
    rows = new_columns(stepper.observation_signature, 3)
    stepper.reset(rows)
    source = RandomActions(space, 3, seeds=[1, 2, 3])
    drawn = [source.draw() for _ in range(3)]
    copies = np.array(active or [0, 1, 2])
    for actions in drawn:
        stepper.step(actions, rows, None if active is None else copies)
    for i in range(3):
        got = stepper.environments[i].actions
        assert len(got) == (3 if i in copies else 0)
        for actions, action in zip(drawn, got, strict=False):
            assert space.contains(action)
            flat = stepper.action_signature.flatten({"action": action})
            for column, array in actions.items():
                np.testing.assert_array_equal(flat[column], array[i])
    n = [3 if i in copies else 0 for i in range(3)]
    assert rows["observation/z"][:, 0].tolist() == n
    assert rows["observation/a/0"][:, 0].tolist() == [k + 1 for k in n]
    assert rows["observation/a/1/b"].tolist() == [k + 2 for k in n]


@pytest.mark.parametrize("name", ACTION_SPACES)
def test_vector_environments_get_batched_actions(name):
    """CE2: a vector environment takes the tree of arrays [n, ...]."""
    space = ACTION_SPACES[name]
    env = gymnasium.vector.SyncVectorEnv([lambda: Recorder(space)] * 2)
    stepper = make_stepper(env)
    rows = new_columns(stepper.observation_signature, 2)
    stepper.reset(rows)
    actions = RandomActions(space, 2, seeds=[1, 2]).draw()
    stepper.step(actions, rows)
    for i in range(2):
        flat = stepper.action_signature.flatten({"action": env.envs[i].actions[0]})
        for column, array in actions.items():
            np.testing.assert_array_equal(flat[column], array[i])
    assert rows["observation/a/1/b"].tolist() == [3, 3]
    stepper.close()


@pytest.mark.parametrize(
    ("observation", "action", "message"),
    [
        (spaces.Dict({}), spaces.Discrete(2), "observation_space: expected a space with at least one array, got Dict"),
        (spaces.Tuple(()), spaces.Discrete(2), "observation_space: expected a space with at least one array"),
        (spaces.Discrete(2), spaces.Dict(a=spaces.Dict({})), "action_space: expected a space with at least one"),
        (spaces.Text(5), spaces.Discrete(2), "observation_space: expected a Box"),
        (spaces.Discrete(2), spaces.Dict(a=spaces.Text(5)), "action_space: a: expected a Box"),
    ],
)  # fmt: skip
def test_spaces_without_an_array(observation, action, message):
    # CE5: before anything is stepped.
    with pytest.raises(SpecError, match=message):
        EnvironmentColumns(observation, action)
