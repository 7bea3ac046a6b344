"""EnvPool that gives the results of some environments while the others still step (`batch_size < num_envs`)."""

# Rules: collectors CE2, CE4, CE5

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.ends import Autoreset
from headrace.envs.adapters.envpool_calls import PoolCalls
from headrace.envs.adapters.envpool_vector import warn_of_seeds
from headrace.envs.adapters.vector_info import VectorInfo
from headrace.envs.autoreset import mode_of
from headrace.envs.columns import AT_RESET, EnvironmentColumns
from headrace.envs.interruption import Uninterrupted
from headrace.envs.protocol import Columns, Indices, Results
from headrace.envs.states import EnvironmentStates
from headrace.errors import SpecError
from headrace.spec import ArraySpec


class AsyncEnvPoolStepper(EnvironmentStates):
    """An `AsyncStepper` over an EnvPool made with `env_type="gymnasium"`.

    EnvPool takes its seeds when it is made (`envpool.make(..., seed=0)`). Seeds of a reset are a warning.

    Args:
        env: the pool.
        autoreset: None or NEXT_STEP.
        info_columns: entries of `info` to keep as columns.

    Raises:
        ValueError: another mode of autoreset.

    >>> import envpool
    >>> from headrace.envs.protocol import NO_ENVS
    >>> pool = envpool.make("Catch-v0", env_type="gymnasium", num_envs=3, batch_size=2)
    >>> stepper = AsyncEnvPoolStepper(pool)
    >>> stepper.send_reset(np.arange(3))
    >>> first = stepper.exchange(NO_ENVS, {})
    >>> stepper.exchange(first.envs, {"action": np.array([1, 1])}).observations["observation"].shape
    (2, 10, 5)
    >>> stepper.close()
    """

    lanes_may_wait = False
    resets_by_mask = True

    def __init__(
        self,
        env: Any,
        autoreset: Autoreset | None = None,
        info_columns: Mapping[str, ArraySpec] | None = None,
    ) -> None:
        self.autoreset = mode_of(env, autoreset)
        self.environments = (env,)
        self.num_envs: int = env.num_envs
        self.batch_size: int = env.config["batch_size"]
        self.observation_space = env.single_observation_space
        self.action_space = env.single_action_space
        self._env = env
        self._columns = EnvironmentColumns(self.observation_space, self.action_space, info_columns)
        self._calls = PoolCalls(env, self._columns)
        self.observation_signature = self._columns.observed
        self.action_signature = self._columns.acted
        self._info = VectorInfo(self._columns, self.batch_size)
        self._is_plain = self._columns.observation_is_bare and not self._columns.info
        self._shapes = {
            name: (self.batch_size, *spec.shape) for name, spec in self._columns.observed.columns.items()
        }
        self.is_busy = np.zeros(self.num_envs, np.bool_)
        self._receipts = 0
        self._closed = False
        self._has_warned = False

    def send_reset(self, envs: Indices, seeds: Sequence[int] | None = None) -> None:
        """See `AsyncStepper.send_reset`."""
        if seeds is not None and not self._has_warned:
            self._has_warned = True
            warn_of_seeds(stacklevel=3)
        with Uninterrupted():
            # `EnvPool.reset` would also receive; `async_reset`, which does not, is of all environments.
            self._env._reset(envs.astype(np.int32))
            self.is_busy[envs] = True

    def exchange(self, envs: Indices, actions: Columns) -> Results:
        """See `AsyncStepper.exchange`."""
        is_busy = self.is_busy
        with Uninterrupted():
            if envs.size:
                self._calls.send(actions, envs)
                is_busy[envs] = True
            observation, reward, terminated, truncated, info = self._calls.receive()
            ready = np.asarray(info["env_id"], np.intp)
            is_busy[ready] = False
        if self._receipts == 0:
            self._check(ready, observation, reward, terminated, truncated)
        self._receipts += 1
        if reward.dtype != np.float32:
            reward = reward.astype(np.float32)
        return Results(ready, self._observations(ready, observation, info), reward, terminated, truncated)

    def _check(self, envs: Indices, observation: Any, reward: Any, terminated: Any, truncated: Any) -> None:
        leading = (self.batch_size,)
        try:
            self._columns.check_observation(observation, leading)
            self._columns.check_outcome(reward, terminated, truncated, leading)
        except SpecError as error:
            raise SpecError(f"environments {envs.tolist()}: {error}") from error

    def _observations(self, envs: Indices, observation: Any, info: Mapping[str, Any]) -> Columns:
        if self._is_plain and getattr(observation, "shape", None) == self._shapes["observation"]:
            return {"observation": observation}
        arrays: dict[str, NDArray[Any]] = self._columns.observation.flatten({"observation": observation})
        for name in self._columns.info:
            arrays[name] = self._info.column(name, info, None, self._receipts - 1 or AT_RESET)
        for name, array in arrays.items():
            if array.shape != self._shapes[name]:
                raise SpecError(
                    f"environments {envs.tolist()}: {name}: expected shape {self._shapes[name]}, got {array.shape}"
                )
        return arrays

    def get_attr(self, name: str) -> Any:
        """See `VectorStepper.get_attr`."""
        return getattr(self._env, name)

    def close(self) -> None:
        """Closes the pool. More calls do nothing."""
        if not self._closed:
            self._closed = True
            self._env.close()
