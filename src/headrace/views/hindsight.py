"""Hindsight: stored goals are replaced, when a batch is drawn, by goals reached later in the episode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.views.goals import GoalFunction, Hindsight
from headrace.views.transition import TransitionView
from headrace.views.view import View, check_views

RELABELLED = "relabelled"


@dataclass(frozen=True, eq=False, repr=False)
class RelabelledView(View):
    """Marks the rows with a replaced goal, bool[B] or bool[B, L]; made by `hindsight`."""


def hindsight(
    views: Mapping[str, View],
    *,
    goal: str,
    achieved: str,
    reward: GoalFunction,
    strategy: str = "future",
    ratio: float = 0.8,
    terminated: GoalFunction | None = None,
    info: Sequence[str] = (),
) -> dict[str, View]:
    """Returns the same views with the goals of some items replaced by goals achieved later in their episodes.

    For each item of a batch, with probability `ratio`, one row of its episode is drawn with the replay's generator. The
    goal achieved there becomes the item's goal: these views show it in place of the goal column, in stacks and next
    observations too, and show the rewards for it. An n-step return is made of n such rewards. Stored rows never change,
    and no row is stored twice. Items of several rows have one goal, because their rows are behaviour towards one goal.
    (Only items that cross the end of an episode have one goal per episode.)

    An item keeps its own goal when no goal is available (the newest row of an unfinished episode has none after it), or
    when the next observation needed for a reward is not stored. `ItemRule(..., lookahead=1)` keeps such items of one
    row out of a table.

    Args:
        views: such as `transition()`; views added to the result afterwards show the stored values.
        goal: the column of goals, or a tree of them, such as "observation/desired_goal".
        achieved: the column of achieved goals, with the same shape and dtype, such as "observation/achieved_goal".
        reward: `reward(achieved_goal, desired_goal, info) -> float[K]` for K transitions at once; `achieved_goal`
            `[K, ...]` is from the row after each. It runs outside the replay's lock, and is not called when K is 0.
        strategy: the rows among which the goal is drawn. "future": rows after the item's first, the final row included;
            "final": the last of these; "episode": all rows of the episode. Of an unfinished episode, the stored rows.
        ratio: the probability that an item's goal is replaced.
        terminated: a function like `reward` that returns bool[K]: whether the goal ends the episode there. The discount
            is computed from it. None keeps the stored `terminated`.
        info: further columns for the functions: `info[column]` is `[K, ...]`, from each transition's row.

    Returns:
        The views, and a view "relabelled" that marks the rows with a replaced goal: bool[B] or bool[B, L].

    Raises:
        ValueError: an unknown strategy; a ratio outside [0, 1]; a view with hindsight already, or named "relabelled";
            `terminated` together with n_step > 1, because the end of the n steps would depend on the goal.
        TypeError: a function cannot be called, or `info` is one string.

    Source: M. Andrychowicz et al., "Hindsight Experience Replay" (2017).

    >>> views = hindsight(
    ...     {"goal": View("goal"), "reward": View("reward")},
    ...     goal="goal", achieved="position", reward=lambda achieved, goal, info: -abs(achieved - goal),
    ... )
    >>> list(views)
    ['goal', 'reward', 'relabelled']
    """
    if isinstance(info, str):
        raise TypeError(f"hindsight: info: expected a list of columns, got the string {info!r}")
    rule = Hindsight(goal, achieved, reward, strategy, ratio, terminated, tuple(info))
    if RELABELLED in views:
        raise ValueError(f"hindsight: expected no view named {RELABELLED!r}, for one is added")
    check_views(views)
    for name, view in views.items():
        if view.hindsight is not None:
            raise ValueError(f"hindsight: view {name!r}: expected a view without hindsight, got {view!r}")
    marked = {name: view.replace(hindsight=rule) for name, view in views.items()}
    check_horizon(marked)
    return {**marked, RELABELLED: RelabelledView(goal, hindsight=rule)}


def check_horizon(views: Mapping[str, View]) -> None:
    """Refuses n-step transitions whose end would depend on the goal.

    Raises:
        ValueError: there is such a view; the message has its name.
    """
    for name, view in views.items():
        if (
            isinstance(view, TransitionView)
            and view.n_step > 1
            and view.hindsight is not None
            and view.hindsight.terminated is not None
        ):
            raise ValueError(
                f"hindsight: view {name!r}: expected n_step=1 together with terminated=, got n_step={view.n_step}: "
                "where the n steps end would depend on the goal. Leave terminated= out, or use n_step=1"
            )


def one_rule(views: Mapping[str, View]) -> Hindsight | None:
    """Returns the rule that all hindsight views share, or None.

    Raises:
        ValueError: there are several.
    """
    found: Hindsight | None = None
    for name, view in views.items():
        if view.hindsight is None:
            continue
        if found is not None and view.hindsight != found:
            raise ValueError(
                f"views: {name!r}: expected one hindsight for all views, since an item has one goal; got "
                f"{found!r} and {view.hindsight!r}"
            )
        found = view.hindsight
    check_horizon(views)
    return found
