"""Resets of a collector's environments that its user asks for."""

# Rules: collectors CQ2

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from headrace.envs.protocol import Indices


class Resets(ABC):
    """The method `reset` of a collector."""

    @property
    @abstractmethod
    def _num_envs(self) -> int:
        """Number of environments, over all workers."""

    @property
    @abstractmethod
    def _resets_by_mask(self) -> bool:
        """Whether some environments can be reset without the others."""

    @abstractmethod
    def _check_usable(self) -> None:
        """Raises if the collector was shut down, or belongs to another process."""

    @abstractmethod
    def _reset_envs(self, envs: Indices | None) -> None:
        """Resets these environments, rising; None: all."""

    def reset(self, reset_idx: Sequence[bool] | None = None) -> None:
        """Resets all environments, or those that are true in `reset_idx`, before their next step.

        A trajectory that is cut carries no flag: its last step is neither terminated nor truncated. The next step of
        the environment begins a trajectory with a new id. An environment that waits because of
        `reset_when_done=False` goes on.

        Args:
            reset_idx: one bool for each environment, worker after worker; None: all.

        Raises:
            ValueError: another number of entries; an environment that cannot be reset alone.
            TypeError: entries that are not bools.
            Closed: after `shutdown`.
        """
        self._check_usable()
        if reset_idx is None:
            self._reset_envs(None)
            return
        chosen = np.asarray(reset_idx)
        if chosen.shape != (self._num_envs,):
            raise ValueError(
                f"reset_idx: expected {self._num_envs} bools, one for each environment, got shape {chosen.shape}"
            )
        if chosen.dtype != np.bool_:
            raise TypeError(f"reset_idx: expected bools, got {chosen.dtype}")
        if not self._resets_by_mask and 0 < np.count_nonzero(chosen) < self._num_envs:
            raise ValueError(
                "reset_idx: this vector environment resets itself and cannot be reset by mask; reset all of it, or "
                "give single environments, or one with autoreset disabled"
            )
        self._reset_envs(np.flatnonzero(chosen))
