"""Declarative windows over stored steps: shifts, stacks, previous actions, n-step transitions."""

from headrace.views.transition import TransitionView, transition
from headrace.views.view import View

__all__ = ["TransitionView", "View", "transition"]
