"""Environments of torch tensors: their columns, their actions, and a policy on their device (collectors CD2)."""

from functools import partial

import numpy as np
import pytest

import headrace as hr
from headrace.envs import make_stepper, new_columns
from headrace.spec import ArraySpec
from headrace.testing import EnvContract
from headrace.testing.agents import CounterAgents
from headrace.testing.dm_envs import DmCounterEnv
from headrace.testing.envs import CounterEnv, counter_vector_env, in_turn
from headrace.trees import map_leaves

torch = pytest.importorskip("torch")

from tests.envs.tensor_counters import (  # noqa: E402
    RemoteTensor,
    TensorCounterEnv,
    TensorVectorEnv,
    remote,
    tensor_vector_env,
)

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
DEVICES = ["cpu", pytest.param("cuda:0", marks=needs_cuda)]
MODES = ["disabled", "same_step", "next_step"]


class TestSingle(EnvContract):
    def make(self, lengths, *, ending="terminated", info_columns=None):
        fns = (
            lambda copy=copy, length=length: TensorCounterEnv(length, copy=copy, ending=ending)
            for copy, length in enumerate(lengths)
        )
        return make_stepper(in_turn(fns), num_envs=len(lengths), info_columns=info_columns, device="cpu")

    def make_wrong(self):
        env = TensorCounterEnv(3)
        env.observation_space = CounterEnv(3, layout="image").observation_space
        return make_stepper(env)

    def seeds(self, stepper):
        return [env.seeds for env in stepper.environments]

    def times_closed(self, stepper):
        return [env.closed for env in stepper.environments]


class _Vector(EnvContract):
    mode = ""

    def make(self, lengths, *, ending="terminated", info_columns=None):
        env = tensor_vector_env(lengths, self.mode, ending=ending)
        return make_stepper(env, info_columns=info_columns, device="cpu")

    def make_wrong(self):
        env = tensor_vector_env([3], self.mode)
        env.single_observation_space = CounterEnv(3, layout="image").observation_space
        return make_stepper(env)

    def seeds(self, stepper):
        return [env.seeds for env in stepper.environments[0].envs]

    def times_closed(self, stepper):
        return [env.closed for env in stepper.environments[0].envs]


class TestVectorDisabled(_Vector):
    mode = "disabled"


class TestVectorSameStep(_Vector):
    mode = "same_step"


class TestVectorNextStep(_Vector):
    mode = "next_step"


del _Vector


# ---- actions -------------------------------------------------------------------------------------------------------


def test_an_environment_on_the_cpu_gets_arrays_unless_a_device_is_asked_for():
    env = tensor_vector_env([3, 3], "disabled", asks_for_tensors=False)
    given = []
    env.step = lambda action, step=env.step: (given.append(action), step(action))[1]
    for device, kind in ((None, np.ndarray), ("cpu", torch.Tensor)):
        stepper = make_stepper(env, device=device)
        row = new_columns(stepper.observation_signature, 2)
        stepper.reset(row)
        stepper.step({"action": np.array([0, 1])}, row)
        assert type(given.pop()) is kind


def test_an_environment_may_change_its_actions():
    # The row that is stored holds what the policy chose.
    class Changing(TensorCounterEnv):
        def step(self, action):
            result = super().step(action)
            action.fill_(3)
            return result

    with hr.Collector(
        lambda: Changing(5), lambda o: np.ones(len(o), np.int64), frames_per_batch=4, env_device="cpu"
    ) as collector:
        assert collector.next()["action"].tolist() == [[1, 1, 1, 1]]


# ---- collectors ----------------------------------------------------------------------------------------------------


class FirstNumber(torch.nn.Module):
    """Acts by the number of steps, and keeps what it was shown."""

    def __init__(self):
        super().__init__()
        self.anchor = torch.nn.Parameter(torch.zeros(()))
        self.shown = []

    def forward(self, observation):
        if isinstance(observation, dict):
            observation = observation["count"]
        self.shown.append(observation)
        return observation[:, -1] % 4


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("layout", ["box", "dict"])
@pytest.mark.parametrize("mode", MODES)
def test_a_policy_on_the_device_of_the_environments_sees_their_tensors(mode, layout, device):
    # Nothing goes through the host on its way to the policy, and rows are those of an environment of arrays.
    policy = FirstNumber().to(device)
    options = {"frames_per_batch": 16, "max_frames_per_traj": 3}
    with hr.Collector(
        tensor_vector_env([2, 7], mode, device=device, layout=layout), policy, env_device=device, **options
    ) as tensors:
        found = [tensors.next() for _ in range(3)]
    assert {type(shown) for shown in policy.shown} == {RemoteTensor if device == "cpu" else torch.Tensor}
    with hr.Collector(counter_vector_env([2, 7], mode, layout=layout), FirstNumber(), **options) as arrays:
        for batch in found:
            expected = arrays.next()
            for name in expected:
                for path, column in _leaves(expected[name], name):
                    np.testing.assert_array_equal(
                        dict(_leaves(batch[name], name))[path], column, err_msg=path
                    )


def _leaves(tree, path):
    if not isinstance(tree, dict):
        return [(path, tree)]
    return [leaf for key, child in tree.items() for leaf in _leaves(child, f"{path}/{key}")]


def test_a_policy_elsewhere_is_given_arrays():
    seen = []

    def policy(observation):
        seen.append(type(observation))
        return observation[:, 2] % 4

    with hr.Collector(
        tensor_vector_env([2, 7], "disabled"), policy, frames_per_batch=8, env_device="cpu"
    ) as collector:
        collector.next()
    assert set(seen) == {np.ndarray}


def test_waiting_environments_keep_their_observations():
    # CR7: those that ended wait for the others, which the vector environment steps too.
    policy = FirstNumber()
    with hr.Collector(
        tensor_vector_env([2, 5], "disabled"),
        policy,
        frames_per_batch=8,
        reset_when_done=False,
        env_device="cpu",
    ) as collector:
        batch = collector.next()
    assert batch["mask"].tolist() == [[True, True, False, False], [True] * 4]
    assert [shown[:, 2].tolist() for shown in policy.shown] == [[0, 0], [1, 1], [2, 2], [2, 3]]


def test_after_a_loaded_state_the_policy_sees_the_loaded_observations():
    # CQ3: the environments' newest tensors are those of the reset before.
    class WithState(TensorVectorEnv):
        def state_dict(self):
            return {"envs": [env.state_dict() for env in self.envs]}

        def load_state_dict(self, state):
            for env, saved in zip(self.envs, state["envs"], strict=True):
                env.load_state_dict(saved)

    def collector(policy):
        env = tensor_vector_env([4, 5], "disabled", kind=WithState)
        return hr.Collector(env, policy, frames_per_batch=6, env_device="cpu")

    policy = FirstNumber()
    with collector(FirstNumber()) as first, collector(policy) as second:
        first.next()
        second.load_state_dict(first.state_dict())
        expected, batch = first.next(), second.next()
    np.testing.assert_array_equal(batch["observation"], expected["observation"])
    assert expected["observation"][:, 0, 2].tolist() == [3, 3]
    assert [[int(number) for number in shown[:, 2]] for shown in policy.shown] == [[3, 3], [0, 4], [1, 0]]


def test_info_columns_and_policies_with_views():
    class Policy:
        view_requirements = {"last": hr.View("action", shift=-1)}  # noqa: RUF012

        def compute_actions(self, inputs):
            return inputs["observation"][:, 2] % 4

    with hr.Collector(
        tensor_vector_env([3, 3], "same_step"),
        Policy(),
        frames_per_batch=8,
        info_columns={"count": ArraySpec((), np.int64)},
        env_device="cpu",
    ) as collector:
        batch = collector.next()
    assert batch["count"].tolist() == [[0, 1, 2, 0]] * 2


def test_in_workers():
    def make(device):
        assert device == "cpu"
        return tensor_vector_env([2, 3], "next_step")

    with hr.AsyncCollector(make, FirstNumber(), frames_per_batch=8, env_device="cpu") as collector:
        batch = collector.next(timeout=30)
    assert batch["observation"][:, :2, 2].tolist() == [[0, 1], [0, 1]]
    np.testing.assert_array_equal(
        batch["action"], np.where(batch["mask"], batch["observation"][..., 2] % 4, 0)
    )


# ---- other kinds of environments -----------------------------------------------------------------------------------


class TensorDmEnv(DmCounterEnv):
    """A dm_env environment of tensors that NumPy cannot read."""

    def reset(self):
        return self._of_tensors(super().reset())

    def step(self, action):
        return self._of_tensors(super().step(np.asarray(action)))

    @staticmethod
    def _of_tensors(timestep):
        return timestep._replace(
            observation=remote(timestep.observation),
            reward=None if timestep.reward is None else remote(timestep.reward),
        )


class TensorAgents(CounterAgents):
    """Agents whose values are tensors on `device`; tensors on the CPU cannot be read by NumPy."""

    device, takes_tensors = "cpu", False

    def reset(self, **options):
        return map_leaves(self._remote, super().reset(**options))

    def step(self, actions):
        arrays = {}
        for agent, action in actions.items():
            assert isinstance(action, torch.Tensor) == self.takes_tensors
            arrays[agent] = np.asarray(action.cpu() if isinstance(action, torch.Tensor) else action)
        return map_leaves(self._remote, super().step(arrays))

    def _remote(self, value):
        return remote(value, self.device)


@pytest.mark.parametrize(
    ("device", "asked"),
    [
        ("cpu", None),
        ("cpu", "cpu"),
        pytest.param("cuda:0", None, marks=needs_cuda),
        pytest.param("cuda:0", "cuda:0", marks=needs_cuda),
    ],
)
def test_agents_of_tensors(device, asked):
    # CE2, CD2: as single environments, with their actions, episodes of several lengths and infos.
    def make(kind):
        env = kind([3, 5, 2])
        env.device, env.takes_tensors = device, device != "cpu" or asked is not None
        return env

    options = {
        "num_envs": 2,
        "frames_per_batch": 60,
        "info_columns": {"count": ArraySpec((), np.int64)},
    }
    found = hr.Collector(partial(make, TensorAgents), lambda o: o[:, -1] % 4, env_device=asked, **options)
    expected = hr.Collector(partial(make, CounterAgents), lambda o: o[:, -1] % 4, **options)
    with found, expected:
        for _ in range(3):
            batch, other = found.next(), expected.next()
            assert list(batch) == list(other)
            for name in other:
                assert isinstance(batch[name], np.ndarray)
                np.testing.assert_array_equal(batch[name], other[name], err_msg=name)


@pytest.mark.parametrize("kind", ["dm_env", "agents"])
def test_environments_of_other_libraries_may_return_tensors(kind):
    # CE2, CD2: the batches are those of the same environment of arrays.
    with_tensors, plain = (TensorDmEnv, DmCounterEnv) if kind == "dm_env" else (TensorAgents, CounterAgents)
    lengths = [3, 5]
    found, expected = (
        hr.Collector(partial(env, lengths), lambda o: o[:, -1] % 4, frames_per_batch=24)
        for env in (with_tensors, plain)
    )
    with found, expected:
        for _ in range(2):
            batch, other = found.next(), expected.next()
            assert list(batch) == list(other)
            for name in other:
                assert isinstance(batch[name], np.ndarray)
                np.testing.assert_array_equal(batch[name], other[name], err_msg=name)
