"""States of lanes: in an episode, ended, or being reset by their environment."""

# Rules: trajectories, section 7

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.ends import Autoreset


def autoreset_mode(autoreset: Any, lanes: int | None) -> Autoreset:
    """Returns the autoreset mode; one lane waits for `add_first` after each end.

    Args:
        autoreset: a name, or gymnasium's `AutoresetMode`.
        lanes: how many; None for one without an axis.

    Raises:
        ValueError: it is missing with lanes, given without, or unknown.
    """
    if lanes is None:
        if autoreset is not None:
            raise ValueError(
                f"autoreset: expected None without lanes, got {autoreset!r}; for a vector environment give lanes too "
                "(envs.num_envs)"
            )
        return Autoreset.DISABLED
    return Autoreset.parse(autoreset)


class LaneStates:
    """Episodes of the lanes of one writer: the open ones, and the call with which each began.

    Args:
        lanes: number of lanes.
        mode: of `autoreset_mode`.

    Attributes:
        lanes: number of lanes.
        open: bool[lanes]: in an episode.
        resetting: bool[lanes]: ended in the last call; the next one is the environment's reset.
        all_open: whether every lane is open.
        any_resetting: whether some lane is resetting.
        changed: whether `EpisodeLimits` must look again, because episodes have begun, ended or passed a limit.
        calls: steps so far; a row of an open lane is counted from `begin`, int64[lanes].
    """

    def __init__(self, lanes: int, mode: Autoreset) -> None:
        self.mode = mode
        self.lanes = lanes
        self.open = np.zeros(lanes, np.bool_)
        self.resetting = np.zeros(lanes, np.bool_)
        self._was_reset = np.zeros(lanes, np.bool_)
        self.begin = np.zeros(lanes, np.int64)
        self.calls = 0
        self.changed = False
        self._look()

    def rows(self, lanes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the numbers of rows of the episodes of these open lanes."""
        return self.calls - self.begin[lanes]

    @property
    def cached(self) -> int:
        """Number of rows of all unfinished episodes."""
        return int((self.calls - self.begin[self.open]).sum())

    # ---- checks: nothing changes -----------------------------------------------------------------------------------

    def check_add(self) -> None:
        """Refuses a step while some lane has no episode.

        Raises:
            ValueError: with the lanes.
        """
        # Rules: trajectories A2, V5
        if 0 in (self.open | self.resetting).tobytes():
            closed = np.flatnonzero(~(self.open | self.resetting))
            if len(self.open) == 1:
                raise ValueError("add: no episode is open; call add_first with its first observation first")
            raise ValueError(
                f"add: lanes {closed.tolist()} have no open episode; reopen them with "
                "add_first(observation, mask=...) first"
            )

    def lanes_to_open(self, mask: NDArray[np.bool_] | None) -> NDArray[np.int64]:
        """Returns the lanes that `add_first` opens.

        Raises:
            ValueError: some are in an episode, or are not to be chosen in this mode.
        """
        wanted = np.ones(len(self.open), np.bool_) if mask is None else mask
        unfinished = np.flatnonzero(wanted & self.open)
        if len(unfinished):
            which = (
                "the episode is"
                if len(self.open) == 1
                else f"the episodes of lanes {unfinished.tolist()} are"
            )
            raise ValueError(f"add_first: {which} unfinished; call reset first, or add until the end")
        if mask is not None and self.mode is not Autoreset.DISABLED:
            others = np.flatnonzero(wanted & ~self._was_reset)
            if len(others):
                raise ValueError(
                    f"add_first: mask: lanes {others.tolist()} were not reset: with autoreset={self.mode.value!r} the "
                    "environment opens episodes by itself, and a mask only reopens lanes after reset(mask=...)"
                )
        return np.flatnonzero(wanted)

    def check_resets(self, ended: NDArray[np.bool_]) -> None:
        """Refuses a flag in a step that is the environment's reset.

        Raises:
            ValueError: with the lanes.
        """
        # Rules: trajectories V3
        if self.any_resetting and 1 in (both := ended & self.resetting).tobytes():
            wrong = np.flatnonzero(both)
            raise ValueError(
                f"add: lanes {wrong.tolist()}: a flag is set in the step after their end, which is a reset in the mode "
                "'next_step'; is the environment in another mode?"
            )

    # ---- changes ---------------------------------------------------------------------------------------------------

    def start(self, lanes: NDArray[np.int64]) -> None:
        """Begins episodes: the next row is their first."""
        self.changed = True
        self.open[lanes] = True
        self.resetting[lanes] = self._was_reset[lanes] = False
        self.begin[lanes] = self.calls
        self._look()

    def close(self, lanes: NDArray[np.int64]) -> None:
        """Ends episodes that `reset` cuts off."""
        self.changed = True
        self.open[lanes] = self.resetting[lanes] = False
        self._was_reset[lanes] = True
        self._look()

    def stepped(self, ended: NDArray[np.int64]) -> None:
        """Notes a step: a reset for the lanes that are resetting, and the last one of the episodes of lanes `ended`."""
        self.changed = True
        self.calls += 1
        if self.any_resetting:
            self.open |= self.resetting
            np.copyto(self.begin, self.calls, where=self.resetting)
            self.resetting[:] = False
        if len(ended):
            if self.mode is Autoreset.SAME_STEP:
                self.begin[ended] = self.calls
            else:
                self.open[ended] = False
                self.resetting[ended] = self.mode is Autoreset.NEXT_STEP
        self._look()

    def _look(self) -> None:
        # Bytes are looked through in a quarter of the time that NumPy takes to count them.
        self.all_open = 0 not in self.open.tobytes()
        self.any_resetting = 1 in self.resetting.tobytes()


def checked_mask(mask: Any, lanes: int | None) -> NDArray[np.bool_] | None:
    """Returns a choice of lanes.

    Raises:
        ValueError: given without lanes, or of another shape.
        TypeError: no booleans.
    """
    if mask is None:
        return None
    if lanes is None:
        raise ValueError("mask: expected None without lanes")
    array = np.asarray(mask)
    if array.dtype != np.bool_:
        raise TypeError(f"mask: expected booleans, got {array.dtype}")
    if array.shape != (lanes,):
        raise ValueError(f"mask: expected shape ({lanes},), got {array.shape}")
    return array
