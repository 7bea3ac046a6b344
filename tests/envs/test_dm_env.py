"""Environments of dm_env beyond the contract: specs, containers, and what does not fit (collectors CE1, CE2, CE7)."""

import warnings

import dm_env
import numpy as np
import pytest
from dm_env import specs
from gymnasium import spaces

import headrace as hr
from headrace.envs import adapt, is_environment, make_stepper, new_columns
from headrace.envs.adapters.dm_env_single import space_of
from headrace.errors import SpecError
from headrace.testing.dm_envs import DmCounterEnv


class Scripted(dm_env.Environment):
    """Returns the given time steps, and keeps the actions."""

    def __init__(self, steps, observation=None, action=None, reward=None):
        self.steps, self.actions = list(steps), []
        self.specs = observation or specs.Array((2,), np.float32), action or specs.DiscreteArray(3)
        self.reward = reward

    def reset(self):
        return self.steps.pop(0)

    def step(self, action):
        self.actions.append(action)
        return self.steps.pop(0)

    def observation_spec(self):
        return self.specs[0]

    def action_spec(self):
        return self.specs[1]

    def reward_spec(self):
        return self.reward or super().reward_spec()


ZERO = np.zeros(2, np.float32)


@pytest.mark.parametrize(
    ("spec", "space"),
    [
        (specs.Array((2,), np.float32), spaces.Box(-np.inf, np.inf, (2,), np.float32)),
        (specs.Array((), np.float64), spaces.Box(-np.inf, np.inf, (), np.float64)),
        (specs.Array((1,), np.int16), spaces.Box(-(2**15), 2**15 - 1, (1,), np.int16)),
        (specs.Array((2,), bool), spaces.Box(np.zeros(2, bool), np.ones(2, bool), dtype=bool)),
        (
            specs.BoundedArray((2,), np.float32, [0, 1], 5),
            spaces.Box(np.array([0, 1], np.float32), np.array([5, 5], np.float32)),
        ),
        (specs.DiscreteArray(4, np.int64), spaces.Discrete(4)),
        (
            {"a": specs.DiscreteArray(2, np.int64), "b": [specs.DiscreteArray(3, np.int64)]},
            spaces.Dict(a=spaces.Discrete(2), b=spaces.Tuple([spaces.Discrete(3)])),
        ),
    ],
)
def test_spaces_of_specs(spec, space):
    """CE7: specs are spaces of the same shape, dtype and bounds."""
    assert space_of(spec, "observation_spec") == space
    assert repr(space_of(spec, "observation_spec")) == repr(space)


@pytest.mark.parametrize("layout", ["box", "dict", "tuple", "image"])
@pytest.mark.parametrize("kind", [hr.Collector, hr.AsyncCollector])
def test_collectors_of_every_layout(kind, layout):
    """CE1, CE2: n copies by n calls, in this process and in a worker's; the last observation is the true one."""
    with kind(
        DmCounterEnv,
        create_env_kwargs={"episode_length": 3, "layout": layout, "ending": "truncated"},
        frames_per_batch=10,
        num_envs=2,
        total_frames=10,
    ) as collector:
        (batch,) = list(collector)
    after = batch["next_observation"]
    after = after["count"] if layout == "dict" else after[0] if layout == "tuple" else after
    steps = after[0, :, 0, 0, 2] if layout == "image" else after[0, :, -1]
    assert steps.tolist() == [1, 2, 3, 1, 2]
    assert batch["truncated"][1].tolist() == [False, False, True, False, False]
    assert not batch["terminated"].any()


def test_discounts_decide_the_flag():
    """CE7: LAST with discount 0: terminated; 0.3: truncated. MID ends nothing, whatever its discount."""
    steps = [dm_env.restart(ZERO), dm_env.transition(1.0, ZERO, 0.0), dm_env.truncation(1.0, ZERO, 0.3)]
    steps += [dm_env.restart(ZERO), dm_env.termination(2.0, ZERO), dm_env.restart(ZERO)]
    batch = hr.Collector(Scripted(steps), frames_per_batch=3).next()
    assert batch["truncated"].tolist() == [[False, True, False]]
    assert batch["terminated"].tolist() == [[False, False, True]]


def test_an_action_comes_in_the_dtype_and_containers_of_its_spec():
    """CE7: dm_env's own `validate` takes the action."""
    spec = {"a": [specs.DiscreteArray(3), specs.BoundedArray((2,), np.float32, -1, 1)]}
    env = Scripted([dm_env.restart(ZERO), *[dm_env.transition(0.0, ZERO)] * 4], action=spec)
    hr.Collector(env, frames_per_batch=4).next()
    assert len(env.actions) == 4
    for action in env.actions:
        assert type(action["a"]) is list
        spec["a"][0].validate(action["a"][0])
        spec["a"][1].validate(action["a"][1])


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([dm_env.transition(0.0, ZERO)], "reset: expected a TimeStep of type FIRST, got one of type"),
        ([(ZERO, {})], "reset: expected a TimeStep of type FIRST, got tuple"),
        ([dm_env.restart(ZERO)] * 2, "step: expected a TimeStep of type MID or LAST, got one of type"),
        (
            [dm_env.restart(ZERO), dm_env.TimeStep(dm_env.StepType.LAST, 0.0, None, ZERO)],
            "step: .*discount None",
        ),
        ([dm_env.restart(ZERO), dm_env.transition(None, ZERO)], "reward"),
        ([dm_env.restart(np.zeros(3, np.float32))], r"environment 0: observation: .*\[2\].*\[3\]"),
    ],
)
def test_time_steps_that_do_not_fit(steps, message):
    """CE5, CE7: refused at the first step; an episode that begins without the end of the last one always."""
    stepper = make_stepper(Scripted(steps))
    rows = new_columns(stepper.observation_signature, 1)
    with pytest.raises(SpecError, match=message):  # noqa: PT012 - either of the two
        stepper.reset(rows)
        stepper.step({"action": np.zeros(1, np.int32)}, rows)


def test_specs_that_do_not_fit():
    """CE5: said when the environment is built, with the path."""
    with pytest.raises(SpecError, match="observation_spec/text: expected a spec of an array of numbers"):
        make_stepper(Scripted([], observation={"text": specs.StringArray(())}))
    with pytest.raises(SpecError, match="reward_spec: expected one number"):
        make_stepper(Scripted([], reward=specs.Array((3,), np.float32)))


def test_a_seed_warns_once():
    """CS1: dm_env takes no seed; random actions are seeded all the same."""
    with hr.Collector(lambda: DmCounterEnv(5), frames_per_batch=6, seed=3) as collector:
        with pytest.warns(UserWarning, match="takes no seed at reset; give one to the callable"):
            first = collector.next()
        collector.set_seed(3)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert (collector.next()["action"] == first["action"]).all()


def test_what_is_recognised():
    """CE1, CE2: ready ones; `adapt` has nothing to say; attributes are the environment's own."""
    env = DmCounterEnv(3)
    assert is_environment(env)
    assert not is_environment(DmCounterEnv)
    assert make_stepper(adapt(env)).environments[0].unwrapped is env
    assert make_stepper(env).get_attr("counter") is env.counter
    with pytest.raises(ValueError, match="autoreset: expected None for a single environment"):
        adapt(env, autoreset="next_step")
