"""Counter environments with the interface of EnvPool: its Python layer over counters in place of its C++ engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np
from envpool.python.envpool import EnvPoolMixin
from envpool.python.gymnasium_envpool import GymnasiumEnvPoolMixin
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from headrace.testing.envs import CounterEnv, Ending

Order: TypeAlias = Callable[[list[int], int], list[int]]


def _oldest_first(ids: list[int], size: int) -> list[int]:
    return ids[:size]


_ACTION_KEYS = ("env_id", "players.env_id", "action")
_STATE_KEYS = ("info:env_id", "elapsed_step", "done", "reward", "trunc", "obs")


class CounterEnvPool(  # type: ignore[misc, override]  # envpool has no types
    GymnasiumEnvPoolMixin, EnvPoolMixin, VectorEnv
):
    """An EnvPool of counters. Like EnvPool it takes a step for a reset (NEXT_STEP).

    Args:
        episode_lengths: of each environment.
        ending: see `CounterEnv`.
        batch_size: the number of environments whose results come at a time; None: all.
        order: of the ids whose results are there and `batch_size`, chooses the results that come next, in their order.
            By default those that have waited longest.

    Raises:
        RuntimeError: at a message to an environment whose last result was not received; where EnvPool would wait for
            ever.

    Attributes:
        counters: the environments.
        times_closed: number of calls of `close`.

    >>> pool = CounterEnvPool([1, 3])
    >>> pool.reset()[0].tolist()
    [[0, 0, 0], [1, 0, 0]]
    >>> pool.step(np.array([0, 1]))[2]
    array([ True, False])
    >>> pool.step(np.array([0, 1]))[0].tolist()
    [[0, 1, 0], [1, 0, 2]]
    """

    def __init__(
        self,
        episode_lengths: Sequence[int],
        *,
        ending: Ending = "terminated",
        batch_size: int | None = None,
        order: Order = _oldest_first,
    ) -> None:
        self.counters = [
            CounterEnv(length, copy=copy, ending=ending) for copy, length in enumerate(episode_lengths)
        ]
        self._gym_observation_space = self.counters[0].observation_space
        self._gym_action_space = self.counters[0].action_space
        self._batch_size = batch_size or len(self.counters)
        config = {
            "num_envs": len(self.counters),
            "batch_size": self._batch_size,
            "max_num_players": 1,
            "gym_reset_return_info": True,
        }
        action_specs = [SimpleNamespace(dtype=np.dtype(kind), shape=()) for kind in ("i4", "i4", "i8")]
        self._spec = SimpleNamespace(
            _config_keys=list(config),
            _config_values=list(config.values()),
            _action_keys=_ACTION_KEYS,
            _action_spec=[(np.int32,), (np.int32,), (np.int64,)],
            action_array_spec=dict(zip(_ACTION_KEYS, action_specs, strict=True)),
        )
        self.spec: Any = self._spec
        self._is_over = [False] * len(self.counters)
        self._state_keys = _STATE_KEYS
        self._order = order
        self._results: dict[int, tuple[Any, ...]] = {}
        self.times_closed = 0

    def _reset(self, env_ids: NDArray[np.int32]) -> None:
        for i in env_ids.tolist():
            self._is_over[i] = False
            self._add(i, self.counters[i].reset()[0], 0.0, False, False, 0)

    def _add(self, *result: Any) -> None:
        if result[0] in self._results:
            raise RuntimeError(f"environment {result[0]}: a message before its last result was received")
        self._results[result[0]] = result

    def _send(self, action: Sequence[NDArray[Any]]) -> None:
        for i, each in zip(action[0].tolist(), action[2], strict=True):
            if self._is_over[i]:
                self._reset(np.array([i]))
                continue
            observation, reward, terminated, truncated, _ = self.counters[i].step(each)
            self._is_over[i] = terminated or truncated
            count = self.counters[i].step_count
            self._add(i, observation, reward, terminated, truncated, count)

    def _recv(self) -> list[NDArray[Any]]:
        size = self._batch_size
        if size < len(self.counters):
            if len(self._results) < size:
                raise RuntimeError(
                    f"recv would wait for ever: {len(self._results)} of {size} environments step"
                )
            chosen = self._order(list(self._results), size)
        else:
            chosen = sorted(self._results)
        results = [self._results.pop(i) for i in chosen]
        ids, observation, reward, terminated, truncated, count = (
            np.array(column) for column in zip(*results, strict=True)
        )
        elapsed, done = count.astype(np.int32), terminated | truncated
        return [ids.astype(np.int32), elapsed, done, reward.astype(np.float32), truncated, observation]

    def _to(self, state: Sequence[NDArray[Any]], reset: bool, return_info: bool) -> Any:  # noqa: ARG002 - EnvPool calls it so
        env_id, elapsed, done, reward, truncated, observation = state
        info = {"env_id": env_id, "players": {"env_id": env_id}, "elapsed_step": elapsed}
        return (observation, info) if reset else (observation, reward, done & ~truncated, truncated, info)

    def close(self, **kwargs: Any) -> None:  # noqa: ARG002 - gymnasium's interface
        """Counts the calls."""
        self.times_closed += 1
