"""How a policy that is a distribution chooses its actions: `ExplorationType`, and the type that holds now."""

# Rules: collectors CR11

from __future__ import annotations

import enum
import inspect
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, TypeVar

_Result = TypeVar("_Result")


class ExplorationType(enum.Enum):
    """How an action is taken from a distribution.

    Attributes:
        RANDOM: a sample; the default.
        MODE: the mode.
        MEAN: the mean.
        DETERMINISTIC: the mode, or the mean where there is no mode.

    >>> ExplorationType.MODE.value
    'mode'
    """

    RANDOM = "random"
    MODE = "mode"
    MEAN = "mean"
    DETERMINISTIC = "deterministic"


_CURRENT = ContextVar("headrace.exploration_type", default=ExplorationType.RANDOM)


def exploration_type() -> ExplorationType:
    """Returns the exploration type that a policy is to act with; a policy may ask for it while it is called.

    Outside the call of a policy by a collector it is RANDOM.

    >>> exploration_type()
    <ExplorationType.RANDOM: 'random'>
    """
    return _CURRENT.get()


def check_exploration_type(value: Any) -> None:
    """Refuses a value that is neither None nor a member of `ExplorationType`.

    Raises:
        ValueError: refused.
    """
    if value is not None and not isinstance(value, ExplorationType):
        names = ", ".join(kind.name for kind in ExplorationType)
        raise ValueError(
            f"exploration_type: expected None or a member of hr.ExplorationType ({names}), got {value!r}"
        )


def exploring(
    call: Callable[[Mapping[str, Any]], _Result], kind: ExplorationType
) -> Callable[[Mapping[str, Any]], _Result]:
    """Returns `call` with this exploration type while it runs: of Headrace, and of tensordict and torchrl if loaded.

    >>> exploring(lambda inputs: exploration_type().name, ExplorationType.MEAN)({})
    'MEAN'
    """

    def explore(inputs: Mapping[str, Any]) -> _Result:
        token = _CURRENT.set(kind)
        try:
            if "tensordict.nn" not in sys.modules:
                return call(inputs)
            with _tensordict_context(kind):
                return call(inputs)
        finally:
            _CURRENT.reset(token)

    return explore


def _tensordict_context(kind: ExplorationType) -> AbstractContextManager[Any]:
    """Returns the context of tensordict's modules, which torchrl uses under its own name, `set_exploration_type`."""
    from tensordict.nn import InteractionType, set_interaction_type

    global _per_thread
    if _per_thread is None:
        has_threads = "thread_local" in inspect.signature(set_interaction_type).parameters
        _per_thread = {"thread_local": True} if has_threads else {}
    return set_interaction_type(InteractionType[kind.name], **_per_thread)


# Arguments for a context of the calling thread alone, where this version of tensordict has it.
_per_thread: dict[str, bool] | None = None
