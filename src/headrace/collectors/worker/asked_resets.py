"""Resets of environments that were asked for and have not taken place."""

# Rules: collectors CS6, CQ2, CQ3

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.collectors.messages import Reset, Seed


class AskedResets:
    """Collects the messages `Seed` and `Reset` until the next step, before which each environment is reset once.

    Attributes:
        done: number of messages whose resets took place, or were dropped because a state was loaded.

    >>> asked = AskedResets()
    >>> asked.add(Reset(envs=[1])), bool(asked), asked.done
    (None, True, 0)
    >>> chosen = np.zeros(3, np.bool_)
    >>> asked.take(chosen), chosen.tolist(), bool(asked), asked.done
    (None, [False, True, False], False, 1)
    """

    def __init__(self) -> None:
        self._came = self.done = 0
        self._envs: set[int] = set()
        self._seed: Seed | None = None

    def add(self, message: Seed | Reset) -> None:
        """Adds what a message asks for."""
        self._came += 1
        if isinstance(message, Seed):
            self._seed = message
        else:
            self._envs.update(message.envs)

    def __bool__(self) -> bool:
        return self._seed is not None or bool(self._envs)

    def take(self, chosen: NDArray[np.bool_]) -> Seed | None:
        """Adds the environments to `chosen`, bool[n], and forgets them; returns the newest seeds, which are for all."""
        seed = self._seed
        chosen[list(self._envs)] = True
        if seed is not None:
            chosen[:] = True
        self._forget()
        return seed

    def _forget(self) -> None:
        self._envs, self._seed, self.done = set(), None, self._came

    def state_dict(self) -> dict[str, Any]:
        """Returns the resets that have not taken place."""
        seed = self._seed
        return {
            "envs": sorted(self._envs),
            "seed": None if seed is None else {"seeds": list(seed.seeds), "seed": seed.seed},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Replaces the resets by those of a state: those that were asked for before belong to another run."""
        self._forget()
        self._envs = set(state["envs"])
        self._seed = None if state["seed"] is None else Seed(**state["seed"])
