"""Frames: steps of a trajectory in the form of frame-based drivers.

A frame pairs an observation with the action taken there and the reward and discount that followed; both of
its step types are stored. An episode of T transitions is T+1 frames: the last, the boundary, carries the
terminal observation.
"""

from __future__ import annotations

import enum
from typing import Any, NamedTuple, cast

import numpy as np

from headrace.spec import register_container

Flag = bool | np.ndarray[Any, np.dtype[np.bool_]]


class StepType(enum.IntEnum):
    """Position of a step in its episode; plain integers are accepted too.

    >>> StepType.LAST == 2
    True
    """

    FIRST = 0
    MID = 1
    LAST = 2


@register_container
class Trajectory(NamedTuple):
    """One frame, or a batch of frames with leading axes; a named tuple, so a tree of columns named by field.

    The kind of a frame follows from `(step_type, next_step_type)`: (0, 1) first of an episode, (1, 1) middle,
    (1, 2) last transition, (0, 2) the only transition, (2, 0) boundary. `reward` and `discount` are the
    result of `action`.

    Attributes:
        step_type: a `StepType`, or integers of any shape.
        observation: a tree of arrays.
        action: a tree of arrays.
        policy_info: a tree of arrays; `()` where the policy returns no extra data.
        next_step_type: as `step_type`, of the frame that follows.
        reward: a number or array.
        discount: a number or array; 0 where the episode terminated.

    >>> frame = Trajectory(StepType.FIRST, np.zeros(3), 1, (), StepType.LAST, 1.0, 0.0)
    >>> frame.is_first(), frame.is_last(), frame.is_boundary()
    (True, True, False)
    """

    step_type: Any
    observation: Any
    action: Any
    policy_info: Any
    next_step_type: Any
    reward: Any
    discount: Any

    def is_first(self) -> Flag:
        """Whether this frame opens an episode: bool, or a bool array of the step types' shape."""
        return _is(self.step_type, StepType.FIRST)

    def is_mid(self) -> Flag:
        """Whether this frame is neither the first nor the last transition nor a boundary."""
        mid = np.equal(self.step_type, StepType.MID) & np.equal(self.next_step_type, StepType.MID)
        return bool(mid) if np.ndim(mid) == 0 else cast("Flag", mid)

    def is_last(self) -> Flag:
        """Whether this is the last transition, the frame before the boundary."""
        return _is(self.next_step_type, StepType.LAST)

    def is_boundary(self) -> Flag:
        """Whether this frame only carries the terminal observation."""
        return _is(self.step_type, StepType.LAST)


def _is(step_type: Any, wanted: StepType) -> Flag:
    found = np.equal(step_type, wanted)
    return bool(found) if np.ndim(found) == 0 else cast("Flag", found)
