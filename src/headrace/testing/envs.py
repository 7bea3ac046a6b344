"""Counter environments: all their data have a closed form, so every row can be checked.

An observation holds (copy, episode, step). A reward encodes its transition and action: `4 * step + action`, where step
belongs to the observation acted upon.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from numpy.typing import NDArray

Ending = Literal["terminated", "truncated", "both"]
Layout = Literal["box", "dict", "tuple", "image"]

NUM_ACTIONS = 4
_IMAGE_SHAPE = (8, 8, 3)


class CounterEnv(gymnasium.Env[Any, Any]):
    """An environment that counts.

    Args:
        episode_length: transitions per episode; a sequence is repeated cyclically.
        copy: the first number of each observation.
        ending: the flags of the last transition of an episode.
        layout: "box": int64[3] (copy, episode, step); "dict": {"count": int64[2] (episode, step), "copy": int64[1]};
            "tuple": (int64[2], int64[1]), the same; "image": uint8[8, 8, 3] whose channel c is full of the c-th
            number modulo 256.

    Attributes:
        seeds: seeds passed to `reset`, in order.
        actions: actions passed to `step`, in order.
        closed: number of calls of `close`.

    >>> env = CounterEnv(2)
    >>> env.reset(seed=3)[0]
    array([0, 0, 0])
    >>> env.step(1)
    (array([0, 0, 1]), 1.0, False, False, {'count': 1})
    >>> env.step(3)
    (array([0, 0, 2]), 7.0, True, False, {'count': 2})
    >>> env.reset()[0]
    array([0, 1, 0])
    """

    def __init__(
        self,
        episode_length: int | Sequence[int],
        *,
        copy: int = 0,
        ending: Ending = "terminated",
        layout: Layout = "box",
    ) -> None:
        self._lengths = (episode_length,) if isinstance(episode_length, int) else tuple(episode_length)
        self._copy, self._ending, self._layout = copy, ending, layout
        self.observation_space = _observation_space(layout)
        self.action_space = spaces.Discrete(NUM_ACTIONS)
        self.episode, self.step_count, self._over = -1, 0, True
        self.seeds: list[int | None] = []
        self.actions: list[int] = []
        self.closed = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Returns the first observation of the next episode."""
        super().reset(seed=seed, options=options)
        self.seeds.append(seed)
        self.episode, self.step_count, self._over = self.episode + 1, 0, False
        return self._observation(), {"count": 0}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Takes one transition.

        Raises:
            RuntimeError: the episode is over.
        """
        if self._over:
            raise RuntimeError("step after the end of the episode")
        self.actions.append(int(action))
        reward = float(NUM_ACTIONS * self.step_count + int(action))
        self.step_count += 1
        self._over = self.step_count == self._lengths[self.episode % len(self._lengths)]
        terminated = self._over and self._ending != "truncated"
        truncated = self._over and self._ending != "terminated"
        return self._observation(), reward, terminated, truncated, {"count": self.step_count}

    def close(self) -> None:
        """Counts the calls."""
        self.closed += 1

    def state_dict(self) -> dict[str, Any]:
        """Returns the counters."""
        # Rules: collectors CQ3
        return {"episode": self.episode, "step_count": self.step_count, "over": self._over}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the counters."""
        self.episode, self.step_count, self._over = state["episode"], state["step_count"], state["over"]

    def _observation(self) -> Any:
        return counter_observation(self._copy, self.episode, self.step_count, self._layout)


def counter_observation(copy: int, episode: int, step: int, layout: Layout = "box") -> Any:
    """Returns the observation of a `CounterEnv`.

    >>> counter_observation(0, 5, 2, "tuple")
    (array([5, 2]), array([0]))
    """
    if layout == "box":
        return np.array([copy, episode, step])
    if layout == "image":
        image = np.empty(_IMAGE_SHAPE, np.uint8)
        image[...] = np.array([copy, episode, step]) % 256
        return image
    count, number = np.array([episode, step]), np.array([copy])
    return {"count": count, "copy": number} if layout == "dict" else (count, number)


def counter_transitions(
    episode_length: int | Sequence[int], count: int
) -> dict[str, NDArray[np.int64] | NDArray[np.bool_]]:
    """Returns the first `count` transitions of one environment in closed form.

    Returns:
        "episode": int64[count], "step": int64[count] (of the observation acted upon), "last": bool[count].

    >>> rows = counter_transitions([3, 1], 5)
    >>> rows["episode"], rows["step"], rows["last"]
    (array([0, 0, 0, 1, 2]), array([0, 1, 2, 0, 0]), array([False, False,  True,  True, False]))
    """
    lengths = np.atleast_1d(np.asarray(episode_length, np.int64))
    ends = np.array(list(accumulate(lengths)))
    rounds, place = np.divmod(np.arange(count), ends[-1])
    which = np.searchsorted(ends, place, side="right")
    return {
        "episode": rounds * len(lengths) + which,
        "step": place - (ends - lengths)[which],
        "last": place == ends[which] - 1,
    }


def counter_env_fns(
    episode_lengths: Sequence[int | Sequence[int]], *, ending: Ending = "terminated", layout: Layout = "box"
) -> list[partial[CounterEnv]]:
    """Returns one callable per environment, for `SyncVectorEnv`, `AsyncVectorEnv`, or a collector."""
    return [
        partial(CounterEnv, length, copy=copy, ending=ending, layout=layout)
        for copy, length in enumerate(episode_lengths)
    ]


def in_turn(env_fns: Iterable[Callable[[], Any]]) -> Callable[[], Any]:
    """Returns one callable that calls the given ones in turn, for environments that differ.

    >>> create = in_turn(counter_env_fns([3, 4]))
    >>> create().reset()[0], create().reset()[0]
    (array([0, 0, 0]), array([1, 0, 0]))
    """
    remaining = iter(tuple(env_fns))

    def create() -> Any:
        return next(remaining)()

    return create


def counter_vector_env(
    episode_lengths: Sequence[int | Sequence[int]],
    autoreset: Literal["disabled", "same_step", "next_step"],
    *,
    ending: Ending = "terminated",
    layout: Layout = "box",
) -> SyncVectorEnv:
    """Returns a vector environment of counters, one per episode length, in one of gymnasium's autoreset modes.

    >>> counter_vector_env([3, 4], "same_step").metadata["autoreset_mode"]
    <AutoresetMode.SAME_STEP: 'SameStep'>
    """
    env_fns = counter_env_fns(episode_lengths, ending=ending, layout=layout)
    return SyncVectorEnv(env_fns, autoreset_mode=AutoresetMode[autoreset.upper()])


def _observation_space(layout: Layout) -> spaces.Space[Any]:
    if layout == "image":
        return spaces.Box(0, 255, _IMAGE_SHAPE, np.uint8)
    largest = np.iinfo(np.int64).max
    if layout == "box":
        return spaces.Box(0, largest, (3,), np.int64)
    count, number = (spaces.Box(0, largest, (size,), np.int64) for size in (2, 1))
    return spaces.Dict(count=count, copy=number) if layout == "dict" else spaces.Tuple((count, number))
