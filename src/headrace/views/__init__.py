"""Declarative windows over steps: shifts, stacks, previous actions, n-step transitions, hindsight."""

import importlib
from typing import TYPE_CHECKING, Any

from headrace.views.arrays.episodes import acting, apply
from headrace.views.goals import Hindsight
from headrace.views.hindsight import RelabelledView, hindsight
from headrace.views.recurrent import StateView, recurrent
from headrace.views.transition import TransitionView, transition
from headrace.views.view import View

if TYPE_CHECKING:
    from headrace.views.dummy import dummy_batch
    from headrace.views.reading import columns_read, prune

__all__ = [
    "Hindsight",
    "RelabelledView",
    "StateView",
    "TransitionView",
    "View",
    "acting",
    "apply",
    "columns_read",
    "dummy_batch",
    "hindsight",
    "prune",
    "recurrent",
    "transition",
]

# These import the batches of a policy, which a replay does without.
_OF_BATCHES = {
    "columns_read": "headrace.views.reading",
    "dummy_batch": "headrace.views.dummy",
    "prune": "headrace.views.reading",
}


# Hidden from type checkers, to which every name would exist.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _OF_BATCHES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(importlib.import_module(_OF_BATCHES[name]), name)
        return found


def __dir__() -> list[str]:
    return sorted(__all__)
