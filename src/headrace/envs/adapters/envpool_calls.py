"""Calls of an EnvPool that go straight to its engine.

The Python layer of EnvPool makes dicts of all its settings and of all entries of `info` at each call. That takes
longer than the engine's own calls, and a collector needs neither.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headrace.envs.columns import EnvironmentColumns
from headrace.envs.protocol import Columns, Indices

Returned: TypeAlias = tuple[Any, Any, Any, Any, dict[str, Any]]


class PoolCalls:
    """Sends actions to an EnvPool made with `env_type="gymnasium"`, and receives results.

    A pool whose methods were replaced is called by them. A tree of actions or observations, or an info column, needs
    EnvPool's own conversion.

    Args:
        env: the pool.
        columns: of its environments.

    >>> import envpool
    >>> pool = envpool.make("Catch-v0", env_type="gymnasium", num_envs=2)
    >>> calls = PoolCalls(pool, EnvironmentColumns(pool.single_observation_space, pool.single_action_space))
    >>> _ = pool.reset()
    >>> calls.send({"action": np.array([1, 1])}, np.arange(2))
    >>> observation, reward, terminated, truncated, info = calls.receive()
    >>> observation.shape, info["env_id"].tolist()
    ((2, 10, 5), [0, 1])
    >>> pool.close()
    """

    def __init__(self, env: Any, columns: EnvironmentColumns) -> None:
        from envpool.python.envpool import EnvPoolMixin

        self._env = env
        self._columns = columns
        is_original = all(
            getattr(getattr(env, name), "__func__", None) is getattr(EnvPoolMixin, name)
            for name in ("send", "recv", "step")
        )
        self._action_type = env._spec._action_spec[-1][0]
        self._sends_directly = (
            is_original
            and columns.action_is_bare
            and len(env._spec._action_keys) == 3
            and tuple(env._spec._action_keys)[:2] == ("env_id", "players.env_id")
        )
        keys = list(env._state_keys)
        observed = [place for place, key in enumerate(keys) if key.partition(":")[0] == "obs"]
        self._receives_directly = (
            is_original and columns.observation_is_bare and not columns.info and len(observed) == 1
        )
        names = ("reward", "done", "trunc", "info:env_id")
        self._places = [observed[0], *map(keys.index, names)] if self._receives_directly else []

    def send(self, actions: Columns, envs: Indices) -> None:
        """Begins a step of environments.

        Args:
            actions: columns `[m, ...]`.
            envs: int[m], their ids.
        """
        env, ids = self._env, envs.astype(np.int32)
        if not self._sends_directly:
            env.send(self._columns.action_tree(actions), ids)
            return
        # The engine reads them later, so they are copies.
        sent: list[NDArray[Any]] = [ids, ids, actions["action"].astype(self._action_type, order="C")]
        env._check_action(sent)
        env._send(sent)

    def receive(self) -> Returned:
        """Waits for results; returns observations, rewards, terminated, truncated and info, as `step` of a pool does.

        The info has at least the entry `env_id`, int32[m].
        """
        if not self._receives_directly:
            returned: Returned = self._env.recv()
            return returned
        results = self._env._recv()
        observation, reward, done, truncated, ids = [results[place] for place in self._places]
        # Of bools: done, and not truncated.
        return observation, reward, np.greater(done, truncated), truncated, {"env_id": ids}
