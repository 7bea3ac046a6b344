"""Hindsight: goals that were reached later in the episode, put in when a batch is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.views.goals import GoalFunction, Hindsight
from headrace.views.transition import TransitionView
from headrace.views.view import View

RELABELLED = "relabelled"


@dataclass(frozen=True, eq=False, repr=False)
class RelabelledView(View):
    """Marks the rows that show a goal of hindsight, bool[B] or bool[B, L]; made by `hindsight`."""


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
    """The same views with the goals of some items replaced by what was achieved later in their episodes.

    For each item of a batch, with probability `ratio`, one row of its episode is drawn from the replay's own generator,
    and what was achieved there is the item's goal: wherever these views show the goal column, in stacks and next
    observations too, they show it, and wherever they show rewards, those for this goal. Stored rows never change, and
    nothing is stored twice. An n-step return is made of n such rewards. Items of several rows have one goal: their
    rows are one stretch of behaviour towards it. (Only items that go on over an end of episode have one for each.)

    An item keeps its own goal where no goal can be drawn (the newest row of an unfinished episode has nothing after
    it), or where a reward that the views show cannot be computed anew, for the observation that followed is not
    stored. `ItemRule(..., lookahead=1)` keeps such items of one row out of a table.

    Args:
        views: such as `transition()`; views that are added to the result afterwards show what is stored.
        goal: the column of goals, or a tree of them, such as "observation/desired_goal".
        achieved: that of what was achieved, alike in shape and dtype, such as "observation/achieved_goal".
        reward: `reward(achieved_goal, desired_goal, info) -> float[K]` for K transitions at once; `achieved_goal`
            `[K, ...]` is that of the row after each. It runs outside the replay's lock, and is not called when K is 0.
        strategy: where the goal is drawn from. "future": the rows after the item's first, the final row included;
            "final": the last of these; "episode": all rows of the episode. Of an unfinished episode, those stored.
        ratio: the probability that an item's goal is replaced.
        terminated: as `reward`, `-> bool[K]`: whether the goal ends the episode there; the discount follows. None
            leaves `terminated` as it is stored.
        info: columns that the functions are given as well: `info[column]` is `[K, ...]`, that of each transition's row.

    Returns:
        The views, and a further one "relabelled", which tells the rows whose goal was replaced: bool[B] or bool[B, L].

    Raises:
        ValueError: an unknown strategy, a ratio outside [0, 1], views that have a hindsight already or one named
            "relabelled", `terminated` together with n_step > 1: where the n steps end would depend on the goal.
        TypeError: a function that cannot be called, `info` that is one string.

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
    for name, view in views.items():
        if not isinstance(view, View):
            raise TypeError(f"views: {name!r}: expected a View, got {view!r}")
        if view.hindsight is not None:
            raise ValueError(f"hindsight: view {name!r}: expected a view without hindsight, got {view!r}")
    marked = {name: view.replace(hindsight=rule) for name, view in views.items()}
    check_horizon(marked)
    return {**marked, RELABELLED: RelabelledView(goal, hindsight=rule)}


def check_horizon(views: Mapping[str, View]) -> None:
    """Refuse n-step transitions whose end would depend on the goal.

    Raises:
        ValueError: with the view's name.
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
    """The hindsight of these views, which is one for all that have any.

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
