"""An environment and a policy whose next step depends on a state of their own."""

import sys
from typing import ClassVar

import cloudpickle
import gymnasium
import numpy as np

import headrace as hr

cloudpickle.register_pickle_by_value(sys.modules[__name__])


class RandomWalk(gymnasium.Env):
    """An environment with generators, a state, and episodes of random lengths."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.np_random.normal(size=2)
        return self.place.copy(), {}

    def step(self, action):
        self.place += self.np_random.normal(size=2) + action
        return self.place.copy(), float(self.place[0]), bool(self.np_random.random() < 0.1), False, {}

    def state_dict(self):
        return {"place": self.place.copy()}

    def load_state_dict(self, state):
        self.place = np.array(state["place"], float).reshape(2)


class Recurrent:
    """A policy with weights, a memory, a view and a column of its own."""

    initial_state = (np.zeros(2),)
    views: ClassVar = {
        "last": hr.View("action", shift=-1),
        "before": hr.View("sum", shift="-3:-1", space=hr.ArraySpec((), "float64")),
    }

    def __init__(self):
        self.gain = np.ones(2)

    def compute_actions(self, input_dict):
        memory = 0.9 * input_dict["state_in_0"] + self.gain * input_dict["observation"]
        total = memory.sum(1)
        action = np.tanh(total + input_dict["before"].sum(1))[:, None].astype(np.float32)
        return action + 0.1 * input_dict["last"], [memory], {"sum": total}

    def state_dict(self):
        return {"gain": self.gain}

    def load_state_dict(self, state):
        self.gain = np.array(state["gain"])
