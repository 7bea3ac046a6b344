"""The contract of environment adapters fails for each adapter that is broken in one place."""

import numpy as np
import pytest

from headrace.envs.adapters.gymnasium_single import SingleEnvStepper
from headrace.envs.protocol import NO_ENVS
from headrace.testing import CounterEnv, EnvContract
from headrace.testing.envs import counter_env_fns


def contract_of(stepper_class):
    class Mine(EnvContract):
        def make(self, lengths, *, ending="terminated", info_columns=None):
            return stepper_class([fn() for fn in counter_env_fns(lengths, ending=ending)], info_columns)

        def make_wrong(self):
            env = CounterEnv(3)
            env.observation_space = CounterEnv(3, layout="image").observation_space
            return stepper_class([env])

        def seeds(self, stepper):
            return [env.seeds for env in stepper.environments]

        def times_closed(self, stepper):
            return [env.closed for env in stepper.environments]

    return Mine


def failing(stepper_class):
    """The names of the tests that fail."""
    contract, failed = contract_of(stepper_class), set()
    for name in dir(contract):
        if name.startswith("test_"):
            try:
                getattr(contract(), name)()
            except (Exception, pytest.fail.Exception):
                failed.add(name)
    return failed


def test_a_correct_one_passes():
    assert failing(SingleEnvStepper) == set()


class MergesFlags(SingleEnvStepper):
    def step(self, *arguments):
        result = super().step(*arguments)
        result.terminated |= result.truncated
        return result


class HidesEnds(SingleEnvStepper):
    def step(self, *arguments):
        result = super().step(*arguments)
        result.ended = NO_ENVS
        return result


class RoundsRewards(SingleEnvStepper):
    def step(self, *arguments):
        result = super().step(*arguments)
        result.reward[:] = result.reward.clip(0, 5)
        return result


class WritesEarlierRows(SingleEnvStepper):
    before = None

    def step(self, actions, out, active=None):
        result = super().step(actions, out, active)
        if self.before is not None:
            self.before[:] = out["observation"]
        self.before = out["observation"]
        return result


class ResetsAll(SingleEnvStepper):
    def reset(self, out, *, envs=None, seeds=None):
        super().reset(out, seeds=seeds)


class SharesSeeds(SingleEnvStepper):
    def reset(self, out, *, envs=None, seeds=None):
        super().reset(out, envs=envs, seeds=None if seeds is None else [seeds[0]] * self.num_envs)


class KeepsSeeding(SingleEnvStepper):
    def reset(self, out, *, envs=None, seeds=None):
        super().reset(out, envs=envs, seeds=[5, 6, 7, 8][: self.num_envs])


class LateInfos(SingleEnvStepper):
    def step(self, actions, out, active=None):
        before = None if "count" not in out else out["count"].copy()
        result = super().step(actions, out, active)
        if before is not None:
            out["count"][:] = before
        return result


class InfosByDefault(SingleEnvStepper):
    def _write_info(self, i, info, out, step):
        for name in self._columns.info:
            out[name][i] = np.asarray(info.get(name, 0))


class Unchecked(SingleEnvStepper):
    def _check_observed(self, observation, info):
        pass

    def _checked_leaf(self, i, name, leaf):
        return 0


class ClosesTwice(SingleEnvStepper):
    def close(self):
        self._closed = False
        super().close()


@pytest.mark.parametrize(
    ("stepper_class", "test"),
    [
        (MergesFlags, "test_every_transition_comes_once"),
        (HidesEnds, "test_every_transition_comes_once"),
        (RoundsRewards, "test_every_transition_comes_once"),
        (WritesEarlierRows, "test_observations_go_into_the_rows_of_the_caller"),
        (ResetsAll, "test_some_are_reset_by_mask"),
        (SharesSeeds, "test_seeds_reach_their_lanes"),
        (KeepsSeeding, "test_seeds_reach_their_lanes"),
        (LateInfos, "test_entries_of_info_are_columns"),
        (InfosByDefault, "test_a_missing_entry_of_info_is_an_error"),
        (Unchecked, "test_observations_that_do_not_fit_the_space_are_refused"),
        (ClosesTwice, "test_it_closes_once"),
    ],
)
def test_faults_are_caught(stepper_class, test):
    assert test in failing(stepper_class)
