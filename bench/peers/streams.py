"""The same steps for every library: 64 lanes of small steps, or frames, with the next observation beside them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.steps import EPISODE, LANES, vector_step

Columns = dict[str, NDArray[Any]]

# Libraries that keep both stacks of a transition whole get fewer of them, still far beyond the caches.
MOST_STACKS = 20_000


def transition(time: int, lanes: int = LANES) -> Columns:
    """One step of every lane, with `next_observation`."""
    step = vector_step(time, lanes)
    step["next_observation"] = vector_step(time + 1, lanes)["observation"]
    return step


def transitions(size: int) -> Iterator[Columns]:
    """`size // LANES` vector steps, made in place: take what is needed before asking for the next."""
    step = transition(0)
    for time in range(size // LANES):
        step["observation"][:, 1] = time
        step["next_observation"][:, 1] = time + 1
        step["reward"][:] = time
        step["terminated"][:] = time % EPISODE == EPISODE - 1
        yield step


def many_transitions(size: int) -> Columns:
    """`size` transitions in one piece."""
    time = np.arange(size) // LANES
    observation = np.zeros((size, 4), np.float32)
    observation[:, 0], observation[:, 1] = np.arange(size) % LANES, time
    after = observation.copy()
    after[:, 1] += 1
    return {
        "observation": observation,
        "next_observation": after,
        "action": np.arange(size) % LANES,
        "reward": time.astype(np.float32),
        "terminated": time % EPISODE == EPISODE - 1,
        "truncated": np.zeros(size, np.bool_),
    }


def stack(number: int) -> NDArray[np.uint8]:
    """Four frames."""
    return np.full((4, 84, 84), number % 251, np.uint8)
