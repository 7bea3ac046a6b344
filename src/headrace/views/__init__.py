"""Declarative windows over stored steps: shifts, stacks, previous actions, n-step transitions, hindsight."""

from headrace.views.episodes import acting, apply
from headrace.views.goals import Hindsight
from headrace.views.hindsight import RelabelledView, hindsight
from headrace.views.recurrent import StateView, recurrent
from headrace.views.transition import TransitionView, transition
from headrace.views.view import View

__all__ = [
    "Hindsight",
    "RelabelledView",
    "StateView",
    "TransitionView",
    "View",
    "acting",
    "apply",
    "hindsight",
    "recurrent",
    "transition",
]
