"""Environments that are stepped asynchronously, one result at a time, as a vector environment for the contract."""

import numpy as np

from headrace.envs.protocol import NO_ENVS, StepResult


class LockStep:
    """A `VectorStepper` over an `AsyncStepper` whose batch size divides the number of environments."""

    def __init__(self, stepper):
        self._stepper = stepper
        self._is_over = np.zeros(stepper.num_envs, bool)

    def __getattr__(self, name):
        return getattr(self._stepper, name)

    def _receive(self, count, envs=NO_ENVS, actions=None):
        for _ in range(count // self._stepper.batch_size):
            yield from zip(*self._rows(self._stepper.exchange(envs, actions)), strict=True)
            envs = NO_ENVS

    def _rows(self, results):
        names = results.observations
        observations = [
            dict(zip(names, row, strict=True)) for row in zip(*results.observations.values(), strict=True)
        ]
        return results.envs, observations, results.reward, results.terminated, results.truncated

    def reset(self, out, *, envs=None, seeds=None):
        envs = np.arange(self.num_envs) if envs is None else envs
        self._stepper.send_reset(envs, seeds)
        self._is_over[envs] = False
        for env, observation, *_ in self._receive(len(envs)):
            self._write(out, env, observation)

    def _write(self, out, env, observation):
        for name, column in out.items():
            column[env] = observation[name]

    def step(self, actions, out, active=None):
        assert active is None
        result = StepResult.empty(self.num_envs)
        # In another order than that of the lanes.
        order = np.arange(self.num_envs)[::-1]
        sent = {name: column[order] for name, column in actions.items()}
        for env, observation, reward, terminated, truncated in self._receive(self.num_envs, order, sent):
            self._write(out, env, observation)
            if not self._is_over[env]:
                result.reward[env], result.terminated[env], result.truncated[env] = (
                    reward,
                    terminated,
                    truncated,
                )
        result.reset_steps = np.flatnonzero(self._is_over)
        self._is_over = result.terminated | result.truncated
        result.ended, result.last_observation, result.waiting = np.flatnonzero(self._is_over), out, NO_ENVS
        return result
