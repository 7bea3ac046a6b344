"""Random histories of vector environments, as SB3's algorithms add them to a replay buffer."""

from typing import NamedTuple

import numpy as np
from gymnasium import spaces


class Call(NamedTuple):
    """The arguments of one `add`."""

    obs: object
    next_obs: object
    action: np.ndarray
    reward: np.ndarray
    done: np.ndarray
    infos: list


BOX = spaces.Box(-np.inf, np.inf, (3,), np.float32)
IMAGE = spaces.Box(0, 255, (2, 4, 4), np.uint8)
DICT = spaces.Dict({"image": IMAGE, "number": spaces.Discrete(1 << 20), "vector": BOX})
NUMBER = spaces.Discrete(1 << 20)
ACTIONS = {"discrete": spaces.Discrete(5), "continuous": spaces.Box(-1, 1, (2,), np.float32)}


def observations(space, numbers):
    """An observation of each environment, in which its number stands."""
    numbers = np.asarray(numbers)
    if isinstance(space, spaces.Dict):
        return {name: observations(child, numbers) for name, child in space.items()}
    if isinstance(space, spaces.Discrete):
        return numbers.copy()
    parts = numbers[:, None] // 256 ** np.minimum(np.arange(np.prod(space.shape)), 7) % 256
    return parts.reshape(-1, *space.shape).astype(space.dtype)


def history(space, action_space, n_envs, length, seed=0):
    """Calls of `add`: no observation comes twice but as the next one of the transition before."""
    random = np.random.default_rng(seed)
    newest, numbers = n_envs, np.arange(n_envs)
    for _ in range(length):
        following = newest + np.arange(n_envs)
        done, cut = random.random((2, n_envs)) < 0.15
        actions = [action_space.sample() for _ in range(n_envs)]
        infos = [{"TimeLimit.truncated": True} if each else {} for each in done & cut]
        yield Call(
            observations(space, numbers),
            observations(space, following),
            np.stack(actions),
            random.normal(size=n_envs).astype(np.float32),
            done,
            infos,
        )
        newest += 2 * n_envs
        numbers = np.where(done, newest - n_envs + np.arange(n_envs), following)


def add_copy(buffer, call):
    """Adds, and overwrites what was given: an environment may use its arrays again."""
    arrays = [
        {name: value.copy() for name, value in each.items()} if isinstance(each, dict) else each.copy()
        for each in call[:5]
    ]
    buffer.add(*arrays, call.infos)
    for each in arrays:
        for array in each.values() if isinstance(each, dict) else [each]:
            array[:] = 0
