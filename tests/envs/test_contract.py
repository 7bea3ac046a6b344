"""The contract of environment adapters over all that Headrace has (collectors CE2 to CE5, CE7)."""

import numpy as np
import pytest

from headrace.envs import make_stepper
from headrace.envs.adapters.envpool_async import AsyncEnvPoolStepper
from headrace.spec import ArraySpec
from headrace.testing import EnvContract
from headrace.testing.agents import CounterAgents
from headrace.testing.dm_envs import DmCounterEnv
from headrace.testing.envpools import CounterEnvPool
from headrace.testing.envs import CounterEnv, counter_env_fns, counter_vector_env, in_turn
from tests.envs.lock_step import LockStep


class TestSingle(EnvContract):
    def make(self, lengths, *, ending="terminated", info_columns=None):
        fns = in_turn(counter_env_fns(lengths, ending=ending))
        return make_stepper(fns, num_envs=len(lengths), info_columns=info_columns)

    def make_wrong(self):
        env = CounterEnv(3)
        env.observation_space = CounterEnv(3, layout="image").observation_space
        return make_stepper(env)

    def seeds(self, stepper):
        return [env.seeds for env in stepper.environments]

    def times_closed(self, stepper):
        return [env.closed for env in stepper.environments]


class TestDmEnv(EnvContract):
    """CE7: LAST with discount 0 is terminated, with discount > 0 truncated."""

    info = {"discount": ArraySpec((), np.float64)}  # noqa: RUF012

    def info_at(self, step, *, is_last):
        return 0.0 if is_last else 1.0

    def make(self, lengths, *, ending="terminated", info_columns=None):
        copies = iter(enumerate(lengths))

        def create():
            copy, length = next(copies)
            return DmCounterEnv(length, copy=copy, ending=ending)

        return make_stepper(create, num_envs=len(lengths), info_columns=info_columns)

    def make_wrong(self):
        env = DmCounterEnv(3)
        env.observation_spec = DmCounterEnv(3, layout="image").observation_spec
        return make_stepper(env)

    def seeds(self, stepper):
        return None

    def times_closed(self, stepper):
        return [env.unwrapped.counter.closed for env in stepper.environments]


class TestEnvPool(EnvContract):
    info = {"elapsed_step": ArraySpec((), np.int32)}  # noqa: RUF012

    def make(self, lengths, *, ending="terminated", info_columns=None):
        return make_stepper(CounterEnvPool(lengths, ending=ending), info_columns=info_columns)

    def make_wrong(self):
        env = CounterEnvPool([3])
        env._gym_observation_space = CounterEnv(3, layout="image").observation_space
        return make_stepper(env)

    def seeds(self, stepper):
        return None

    def times_closed(self, stepper):
        return [env.times_closed for env in stepper.environments]


class TestAsyncEnvPool(TestEnvPool):
    """Results come one at a time, the newest first."""

    def make(self, lengths, *, ending="terminated", info_columns=None):
        pool = CounterEnvPool(lengths, ending=ending, batch_size=1, order=lambda ids, size: ids[::-1][:size])
        return LockStep(AsyncEnvPoolStepper(pool, info_columns=info_columns))

    def make_wrong(self):
        env = CounterEnvPool([3])
        env._gym_observation_space = CounterEnv(3, layout="image").observation_space
        return LockStep(AsyncEnvPoolStepper(env))


class TestParallel(EnvContract):
    """One environment whose agents end at different steps."""

    seeds_of_two = (5, 5)

    def make(self, lengths, *, ending="terminated", info_columns=None):
        return make_stepper(CounterAgents(lengths, ending=ending), info_columns=info_columns)

    def make_wrong(self):
        env = CounterAgents([3, 3])
        for counter in env.counters.values():
            counter.observation_space = CounterEnv(3, layout="image").observation_space
        return make_stepper(env)

    def seeds(self, stepper):
        return [counter.seeds for env in stepper.environments for counter in env.counters.values()]

    def times_closed(self, stepper):
        return [env.closed for env in stepper.environments]


class TestParallelCopies(TestParallel):
    """Environments of one agent each."""

    seeds_of_two = (5, 6)

    def make(self, lengths, *, ending="terminated", info_columns=None):
        fns = (
            lambda copy=copy, length=length: CounterAgents([length], first_copy=copy, ending=ending)
            for copy, length in enumerate(lengths)
        )
        return make_stepper(in_turn(fns), num_envs=len(lengths), info_columns=info_columns)


class _Vector(EnvContract):
    mode = ""

    def make(self, lengths, *, ending="terminated", info_columns=None):
        return make_stepper(counter_vector_env(lengths, self.mode, ending=ending), info_columns=info_columns)

    def make_wrong(self):
        env = counter_vector_env([3], self.mode)
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


@pytest.mark.parametrize("contract", [TestSingle, TestVectorNextStep])
def test_a_contract_is_run_by_pytest(contract):
    assert len([name for name in dir(contract) if name.startswith("test_")]) >= 11
