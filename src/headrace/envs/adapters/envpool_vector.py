"""EnvPool, stepped all at once: a vector environment whose seeds and partial resets are its own."""

# Rules: collectors CE2, CE4, CR5

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import optree
from numpy.typing import NDArray

from headrace.ends import Autoreset
from headrace.envs.adapters.envpool_calls import PoolCalls
from headrace.envs.adapters.gymnasium_vector import VectorEnvStepper
from headrace.envs.protocol import Columns, Indices
from headrace.spec import ArraySpec


class EnvPoolStepper(VectorEnvStepper):
    """A `VectorStepper` over an EnvPool made with `env_type="gymnasium"`.

    EnvPool takes its seeds when it is made (`envpool.make(..., seed=0)`). Seeds of `reset` are a warning.

    Args:
        env: the pool.
        autoreset, info_columns: see `VectorEnvStepper`.

    Raises:
        ValueError: a pool of another type, or with several players in an environment.

    >>> import envpool
    >>> from headrace.envs.columns import new_columns
    >>> stepper = EnvPoolStepper(envpool.make("Catch-v0", env_type="gymnasium", num_envs=2))
    >>> rows = new_columns(stepper.observation_signature, 2)
    >>> stepper.reset(rows)
    >>> stepper.step({"action": np.array([1, 1])}, rows).reward
    array([0., 0.], dtype=float32)
    >>> rows["observation"].shape, stepper.autoreset
    ((2, 10, 5), <Autoreset.NEXT_STEP: 'next_step'>)
    """

    def __init__(
        self,
        env: Any,
        autoreset: Autoreset | None = None,
        info_columns: Mapping[str, ArraySpec] | None = None,
    ) -> None:
        check_envpool(env)
        super().__init__(env, autoreset, info_columns)
        self._env: Any = env
        self.resets_by_mask = True
        self._has_warned = False
        self._pool_calls = PoolCalls(env, self._columns)
        self._every_env = np.arange(self.num_envs)

    def _call_step(self, actions: Columns) -> Any:
        self._pool_calls.send(actions, self._every_env)
        return self._pool_calls.receive()

    def _call_reset(self, envs: Indices | None, seeds: Sequence[int] | None) -> Any:
        if seeds is not None and not self._has_warned:
            self._has_warned = True
            warn_of_seeds(stacklevel=3)
        if envs is None:
            return self._env.reset()
        # EnvPool returns the rows of these environments alone.
        observation, info = self._env.reset(envs.astype(np.int32))
        place = info["env_id"]
        observation = optree.tree_map(lambda rows: self._spread(rows, place), observation)
        entries = {name: self._spread(info[name], place) for name in self._columns.info if name in info}
        return observation, entries

    def _spread(self, rows: NDArray[Any], place: NDArray[np.int32]) -> NDArray[Any]:
        """Returns the rows in an array `[n, ...]`, zeros elsewhere."""
        spread = np.zeros((self.num_envs, *rows.shape[1:]), rows.dtype)
        spread[place] = rows
        return spread


def warn_of_seeds(*, stacklevel: int) -> None:
    """Warns that seeds of a reset do not reach the environments of a pool."""
    warnings.warn(
        "seed: EnvPool takes its seeds when it is made: envpool.make(..., seed=...). Random actions are seeded all the "
        "same",
        UserWarning,
        stacklevel=stacklevel + 1,
    )


def check_envpool(env: Any) -> None:
    """Raises ValueError if a pool has no gymnasium interface, or several players; see `EnvPoolStepper`."""
    config = env.config
    if not hasattr(env, "single_observation_space"):
        raise ValueError(
            'EnvPool: expected an environment made with env_type="gymnasium", got one of another type'
        )
    if config.get("max_num_players", 1) > 1:
        raise ValueError(
            f"EnvPool: expected one player in each environment, got max_num_players={config['max_num_players']}"
        )
