"""The result of one call of a policy, read by the rule of the policy's form. Nothing is checked against specs here."""

# Rules: views-rollouts P1, collectors CP3

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from headrace.errors import SpecError
from headrace.spec import Signature


class PolicyResult(NamedTuple):
    """Values that a policy returned for B rows.

    Attributes:
        actions: the tree of the action space, arrays `[B, ...]`.
        state_outs: the new recurrent states, one array `[B, ...]` each.
        extras: further columns `[B, ...]` by name.
    """

    actions: Any
    state_outs: Sequence[Any] = ()
    extras: Mapping[str, Any] = {}


Read: TypeAlias = Callable[[Any, Signature], PolicyResult]
"""Reads what a policy returned; takes the returned value and `Signature({"action": ...})`."""


def actions_alone(returned: Any, _acted: Signature) -> PolicyResult:
    """Reads the returned value as the actions, always."""
    return PolicyResult(returned)


def actions_or_pair(returned: Any, acted: Signature) -> PolicyResult:
    """Reads the actions, or the pair of actions and a dict of further columns.

    A Tuple action space has tuples as actions, so its value is always the actions.

    Raises:
        SpecError: a pair whose second value is not a dict.

    >>> acted = Signature.like({"action": 0})
    >>> actions_or_pair(([1, 2], {"value": [0.5, 0.25]}), acted).extras
    {'value': [0.5, 0.25]}
    """
    if type(returned) is not tuple or len(returned) != 2 or has_tuple_actions(acted):
        return PolicyResult(returned)
    actions, extras = returned
    if not isinstance(extras, Mapping):
        raise SpecError(
            f"expected the actions, or the pair (actions, dict of columns), got {_described(returned)}; where a "
            "method returns more, as predict of Stable-Baselines3, give `lambda observation: predict(observation)[0]`"
        )
    return PolicyResult(actions, (), extras)


def actions_or_triple(returned: Any, acted: Signature) -> PolicyResult:
    """Reads the actions, or the triple of actions, a list of states and a dict of further columns.

    Raises:
        SpecError: not the triple, for a Tuple action space; a triple with other types.

    >>> acted = Signature.like({"action": 0})
    >>> actions_or_triple(([1, 2], [[0.5, 0.25]], {}), acted).state_outs
    [[0.5, 0.25]]
    """
    if type(returned) is not tuple or len(returned) != 3:
        if has_tuple_actions(acted):
            raise SpecError(
                "compute_actions: expected the triple (actions, state_outs, extras), because the action space is a "
                f"Tuple, got {_described(returned)}"
            )
        return PolicyResult(returned)
    actions, state_outs, extras = returned
    if not isinstance(state_outs, list | tuple) or not isinstance(extras, Mapping):
        raise SpecError(
            "compute_actions: expected the triple (actions, list of states, dict of columns), got "
            f"{_described(returned)}"
        )
    return PolicyResult(actions, state_outs, extras)


def has_tuple_actions(acted: Signature) -> bool:
    """Whether an action is a tuple."""
    return isinstance(acted.tree["action"], tuple)


def _described(returned: Any) -> str:
    if type(returned) is not tuple:
        return type(returned).__name__
    return f"a tuple of {len(returned)} ({', '.join(type(value).__name__ for value in returned)})"
