"""How collectors call policies of each form (collectors CP1 to CP6)."""

import os
import sys

import cloudpickle
import numpy as np
import optree
import pytest
from gymnasium import spaces

import headrace as hr
from headrace.testing import CounterEnv

cloudpickle.register_pickle_by_value(sys.modules[__name__])

COLLECTORS = [hr.Collector, hr.AsyncCollector]
INFO = {"count": hr.ArraySpec((), np.int64)}


class BoxActions(CounterEnv):
    """A counter whose actions are pairs of float32; it keeps what it was given."""

    def __init__(self):
        super().__init__(5)
        self.action_space = spaces.Box(-9, 9, (2,), np.float32)
        self.given = []

    def step(self, action):
        self.given.append(action)
        return super().step(0)


def test_a_policy_is_called_once_a_step_with_all_observations():
    # CP1: in the order of steps, over batches, a batch of one environment too.
    calls = []

    def policy(observation):
        calls.append(observation.copy())
        return observation[:, 2] % 4

    with hr.Collector(lambda: CounterEnv(3), policy, frames_per_batch=8, num_envs=2) as collector:
        batches = [collector.next() for _ in range(2)]
    seen = np.concatenate([batch["observation"] for batch in batches], axis=1)
    np.testing.assert_array_equal(np.stack(calls, axis=1), seen)

    calls.clear()
    with hr.Collector(lambda: CounterEnv(3), policy, frames_per_batch=2) as collector:
        collector.next()
    assert [call.shape for call in calls] == [(1, 3)] * 2


class Scaling:
    """Writes into what it is given, as networks with operations in place do, and keeps it."""

    def __init__(self):
        self.kept = []

    def __call__(self, observation):
        leaves = list(observation.values()) if isinstance(observation, dict) else [observation]
        for leaf in leaves:
            leaf *= 0
        self.kept.append(observation)
        return np.zeros(len(leaves[0]), np.int64)


class ScalingObject(Scaling):
    def compute_actions(self, input_dict):
        return self(input_dict["observation"])


def scaling_module():
    torch = pytest.importorskip("torch")

    class Module(torch.nn.Module):
        def forward(self, observation):
            leaves = list(observation.values()) if isinstance(observation, dict) else [observation]
            for leaf in leaves:
                leaf.mul_(0)
            return torch.zeros(len(leaves[0]), dtype=torch.int64)

    return Module()


@pytest.mark.parametrize("make_policy", [Scaling, ScalingObject, scaling_module])
@pytest.mark.parametrize("layout", ["box", "dict"])
@pytest.mark.parametrize("infos", [None, INFO], ids=["alone", "infos"])
def test_a_policy_that_writes_into_its_observations_changes_no_recorded_row(make_policy, layout, infos):
    # P2, CP2: the arrays that a policy is given are its own, as those of views and states are.
    policy = make_policy()
    create = lambda: CounterEnv(3, layout=layout)  # noqa: E731 - one line
    options = {"frames_per_batch": 16, "num_envs": 2, "info_columns": infos}
    with (
        hr.Collector(create, policy, **options) as collector,
        hr.Collector(create, lambda _: np.zeros(2, np.int64), **options) as reader,
    ):
        for _ in range(2):
            optree.tree_map(np.testing.assert_array_equal, dict(collector.next()), dict(reader.next()))
    # Neither does a later step write into an observation that the policy has kept.
    assert not any(leaf.any() for leaf in optree.tree_leaves(getattr(policy, "kept", [])))


@pytest.mark.parametrize("values", [np.full((2, 2), 0.1), [[0.1, 0.1]] * 2, np.full((2, 2), 0.1, np.float16)])
def test_floats_are_cast_to_the_action_space(values):
    # CP1, accumulator A20.
    with hr.Collector(BoxActions, lambda seen: values, frames_per_batch=4, num_envs=2) as collector:
        batch = collector.next()
        assert collector.env.given[0].dtype == np.float32
    assert batch["action"].dtype == np.float32
    np.testing.assert_array_equal(batch["action"][0, 0], np.asarray(values, np.float32)[0])


@pytest.mark.parametrize("values", [[2.9, 2.9], [2.0, 2.0], np.array([1, 1j])])
def test_floats_are_not_cast_to_integers(values):
    # CP1: never by its value.
    with hr.Collector(
        lambda: CounterEnv(3), lambda seen: values, frames_per_batch=4, num_envs=2
    ) as collector:
        with pytest.raises(
            hr.SpecError, match=r"policy: action: expected int64\[2\], got .* never stored as integer"
        ):
            collector.next()


@pytest.mark.parametrize("is_training", [True, False])
def test_the_mode_of_a_module_is_left_alone(is_training):
    # CP2.
    torch = pytest.importorskip("torch")

    class Module(torch.nn.Module):
        def forward(self, seen):
            assert self.training is is_training
            assert not torch.is_grad_enabled()
            return torch.zeros(len(seen), dtype=torch.int64)

    module = Module().train(is_training)
    with hr.Collector(lambda: CounterEnv(3), module, frames_per_batch=4) as collector:
        collector.next()
    assert module.training is is_training
    assert torch.is_grad_enabled()


def test_results_that_need_gradients():
    # CP2: a callable on tensors of its own, and a module with compute_actions.
    torch = pytest.importorskip("torch")
    weight = torch.nn.Parameter(torch.ones(1))

    def policy(seen):
        return torch.zeros(len(seen), dtype=torch.int64), {"value": seen[:, 2] * weight}

    class Module(torch.nn.Module):
        initial_state = (np.zeros(1, np.float32),)

        def compute_actions(self, input_dict):
            assert not torch.is_grad_enabled()
            state = torch.from_numpy(input_dict["state_in_0"])
            actions, extras = policy(torch.from_numpy(input_dict["observation"]))
            return actions, [state + weight], extras

    for given in (lambda seen: policy(torch.from_numpy(seen)), Module()):
        with hr.Collector(lambda: CounterEnv(9), given, frames_per_batch=4) as collector:
            batch = collector.next()
        np.testing.assert_array_equal(batch["value"], [[0, 1, 2, 3]])
    np.testing.assert_array_equal(batch["state_in_0"], [[[0], [1], [2], [3]]])


def test_without_a_policy_actions_are_uniform():
    # CP2: each of the four actions as often as another, up to 5 standard deviations.
    with hr.Collector(lambda: CounterEnv(50), frames_per_batch=4000, num_envs=8, seed=1) as collector:
        actions = collector.next()["action"]
    counts = np.bincount(actions.reshape(-1), minlength=4)
    assert len(counts) == 4
    assert np.abs(counts - 1000).max() < 5 * np.sqrt(4000 * 0.25 * 0.75)


def test_a_factory_is_called_once_in_the_collecting_process():
    # CP2.
    made = []

    def factory():
        pid = os.getpid()
        made.append(pid)
        return lambda seen: (seen[:, 2] % 4, {"pid": np.full(len(seen), pid)})

    with hr.Collector(lambda: CounterEnv(5), policy_factory=factory, frames_per_batch=4) as collector:
        assert (collector.next()["pid"] == os.getpid()).all()
    assert len(made) == 1
    with hr.AsyncCollector(lambda: CounterEnv(5), policy_factory=factory, frames_per_batch=4) as collector:
        batch = collector.next(timeout=40)
    assert os.getpid() not in batch["pid"]


def test_further_columns_may_not_change():
    # CP3: the first call decides; the collector stays usable.
    calls = []

    def policy(observation):
        calls.append(None)
        extras = {"value": observation[:, 0]}
        return observation[:, 2] % 4, extras if len(calls) != 3 else extras | {"other": observation[:, 0]}

    with hr.Collector(lambda: CounterEnv(5), policy, frames_per_batch=4) as collector:
        with pytest.raises(hr.SpecError, match=r"expected the columns \('value',\) of its first call, got"):
            collector.next()
        assert collector.next()["value"].shape == (1, 4)


@pytest.mark.parametrize(
    "name",
    [
        "observation",
        "next_observation",
        "action",
        "reward",
        "terminated",
        "truncated",
        "episode_id",
        "t",
        "mask",
    ],
)
def test_names_of_columns_of_every_step_are_refused(name):
    # CP3.
    policy = lambda seen: (seen[:, 2] % 4, {name: seen[:, 0]})  # noqa: E731 - one line
    with hr.Collector(lambda: CounterEnv(5), policy, frames_per_batch=4) as collector:
        with pytest.raises(hr.SpecError, match=f"policy: the column '{name}' is"):
            collector.next()


@pytest.mark.parametrize("kind", COLLECTORS)
def test_a_function_of_parameters(kind):
    # CP4.
    def apply(params, observation):
        return (observation[:, 2] + params["offset"]) % 4, {
            "offset": np.repeat(params["offset"], len(observation))
        }

    policy = hr.FunctionalPolicy(apply, {"offset": np.array(0)})
    with kind(lambda: CounterEnv(50), policy, frames_per_batch=4) as collector:
        collector.update_policy_weights_({"offset": np.array(3)})
        batches = [collector.next(timeout=40) for _ in range(4)]
    for batch in batches:
        np.testing.assert_array_equal(batch["offset"], 3 * batch["policy_version"])
        np.testing.assert_array_equal(batch["action"], (batch["observation"][..., 2] + batch["offset"]) % 4)
    assert (batches[-1]["policy_version"] == 1).all()


def test_a_jax_policy():
    # CP4: arrays of JAX in and out, as one function.
    jax = pytest.importorskip("jax")

    @jax.jit
    def apply(params, observation):
        return observation[:, 2] % 4, {"value": observation[:, 2] * params["scale"]}

    policy = hr.FunctionalPolicy(apply, {"scale": jax.numpy.float32(2)})
    with hr.Collector(lambda: CounterEnv(9), policy, frames_per_batch=4) as collector:
        np.testing.assert_array_equal(collector.next()["value"], [[0, 2, 4, 6]])
        collector.update_policy_weights_({"scale": jax.numpy.float32(3)})
        assert isinstance(policy.params["scale"], jax.Array)
        np.testing.assert_array_equal(collector.next()["value"], [[12, 15, 18, 21]])


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ((np.zeros(2, int), None), r"a tuple of 2 \(ndarray, NoneType\).*lambda observation: predict"),
        ((np.zeros(2, int), np.zeros(2), np.zeros(2)), r"or the pair \(actions, dict of further columns\)"),
    ],
)
def test_habits_of_other_libraries_are_told(returned, message):
    # CP3: `predict` of Stable-Baselines3 gives actions and states; networks give actions, log-probs and values.
    with hr.Collector(lambda: CounterEnv(3), lambda _: returned, frames_per_batch=6, num_envs=2) as collector:
        with pytest.raises(hr.SpecError, match=message):
            collector.next()
