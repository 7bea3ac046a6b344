"""The rows around a row that views read: whether a policy may see them, and how many are kept as history."""

# Rules: views V8

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from headrace.views.columns import is_pre_by_name
from headrace.views.view import View

# Of another agent these may be unknown still when its next observation has not come.
_OPEN = ("reward", "terminated", "truncated")


def is_causal(name: str, view: View, *, is_pre: bool) -> bool:
    """Whether all values that the view shows are known before acting, given the phase of its column."""
    # Rules: views V8, M9
    if view.agent is not None and (view.data_col or name) in _OPEN:
        return False
    return view.furthest <= (0 if is_pre else -1)


def check_causal(name: str, view: View, *, is_pre: bool) -> None:
    """Refuses a view for acting that shows what is not known yet.

    Raises:
        ValueError: the message has the view's name.
    """
    if view.used_for_compute_actions and not is_causal(name, view, is_pre=is_pre):
        raise ValueError(
            f"view {name!r}: used_for_compute_actions=True, but it looks at what is not known when acting: {view!r}"
        )


def acting_views(views: Mapping[str, View], final: Collection[str] = ()) -> dict[str, View]:
    """Returns the views that are passed to a policy, every row of them.

    Args:
        views: maps names to views.
        final: columns that are known before acting, beside those that are so by their names.

    Raises:
        ValueError: a view for acting shows what is not known yet.
    """
    found = {}
    for name, view in views.items():
        path = view.data_col or name
        is_final = any(column == path or column.startswith(f"{path}/") for column in final)
        is_pre = view.is_known_before_acting or is_final or is_pre_by_name(path)
        check_causal(name, view, is_pre=is_pre)
        if view.used_for_compute_actions is not False and is_causal(name, view, is_pre=is_pre):
            # Rules: views V9
            found[name] = view.replace(every=1) if view.every > 1 else view
    return found


def look_back(views: Iterable[View]) -> int:
    """Returns the number of rows before a row that the views read: the history that has to be kept.

    >>> look_back([View("observation", shift="-3:0"), View("action", shift=-1), View("reward", shift=2)])
    3
    """
    # Rules: views R16
    return max([0, *(-min(view.offsets) for view in views)])
