"""Views of whole episodes and fragments: all their rows, or the row that a policy sees now."""

# Rules: views V11 to V15

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, cast

import numpy as np

from headrace.spec import Signature
from headrace.store.gather import Pool
from headrace.views.arrays.recorded import Episode, Fragment, Recorded, join_tails, read, read_all
from headrace.views.arrays.rows import ArrayPlan, Arrays, Segments
from headrace.views.causality import acting_views, look_back
from headrace.views.columns import Columns
from headrace.views.view import View, check_views


def apply(views: Mapping[str, View], episode: Episode | Fragment) -> dict[str, Any]:
    """Presents every view of an episode, or of a fragment of one.

    Args:
        views: maps names to views; all are presented, whatever their flags.
        episode: an `hr.Episode`, or `episode.fragment(start, stop)`. A fragment sees the rows before it. It sees no
            row after it but the observation that followed.

    Returns:
        Name to array `[T, ...]` or `[T, W, ...]`, or a tree of these, and the masks as `<name>_mask`. With `every=k`
        there are `ceil(T / k)` rows. The arrays are copies.

    Raises:
        SpecError: a view of an unknown column; a space that contradicts it; a fill that its dtype cannot hold.
        TypeError: `views` is not a dict of views.
        ValueError: a view for acting that looks ahead; a view of other agents; a view with hindsight.

    >>> from headrace.trajectories import Episode
    >>> episode = Episode([10, 11, 12], [0, 1], [0.5, 2.0], [False, True], [False, False])
    >>> apply({"next": View("observation", shift=1), "last_reward": View("reward", shift=-1)}, episode)
    {'next': array([11, 12]), 'last_reward': array([0. , 0.5])}
    """
    check_views(views)
    recorded = read(episode, views)
    segments = Segments.of_fragment(recorded.stop, range(recorded.start, recorded.stop))
    return _present(views, recorded.signature, recorded.arrays, segments)


def acting(
    views: Mapping[str, View], episodes: Episode | Fragment | Iterable[Episode | Fragment]
) -> dict[str, Any]:
    """Presents what a policy may see now: the views of row T of ongoing episodes of T transitions.

    Each row is the same, in value, dtype, shape and mask, as the row T of `apply` later.

    Args:
        views: maps names to views. Views that show what is not known before acting are left out, and views with
            `used_for_compute_actions=False`. `every` is ignored.
        episodes: an ongoing `hr.Episode` of T transitions and T+1 observations, or several. The fragment
            `episode.fragment(0, t)` is the episode as it was before its action t.

    Returns:
        Name to array `[B, ...]` or `[B, W, ...]`, or a tree of these, and the masks as `<name>_mask`; B is 1 for a
        single episode.

    Raises:
        SpecError: a view of an unknown column; at t = 0 one of a column that no episode has, without `space`.
        TypeError: `views` is not a dict of views; `episodes` are not episodes.
        ValueError: a view with `used_for_compute_actions=True` that looks ahead; no episodes; a view of other agents.

    >>> from headrace.trajectories import Episode
    >>> episode = Episode([10, 11, 12], [0, 1], [0.5, 2.0], [False, False], [False, False])
    >>> acting({"stack": View("observation", shift="-1:0"), "last_reward": View("reward", shift=-1)}, episode)
    {'stack': array([[11, 12]]), 'last_reward': array([2.])}
    """
    check_views(views)
    shown = acting_views(views)
    if hasattr(episodes, "observations") or hasattr(episodes, "episode"):
        several = [cast("Episode | Fragment", episodes)]
    elif isinstance(episodes, Iterable):
        several = list(episodes)
    else:
        raise TypeError(
            f"episodes: expected an hr.Episode, a fragment of one or several of these, got {type(episodes).__name__}"
        )
    if not several:
        raise ValueError("episodes: expected at least one episode, got an empty list")
    recorded = read_all(several, shown)
    if len(recorded) == 1:
        return _present_newest(shown, recorded[0])
    return _present_newest_of_many(shown, recorded)


def _present_newest(views: Mapping[str, View], recorded: Recorded) -> dict[str, Any]:
    stop = recorded.stop
    segments = Segments.of_fragment(stop, range(stop, stop + 1))
    return _present(views, recorded.signature, recorded.arrays, segments)


def _present_newest_of_many(views: Mapping[str, View], recorded: list[Recorded]) -> dict[str, Any]:
    tails = join_tails(recorded, look_back(views.values()))
    rows = tails.begins + tails.lengths
    segments = Segments(rows, tails.begins, rows + 1, rows, np.zeros_like(rows))
    return _present(views, tails.signature, tails.arrays, segments)


def _present(
    views: Mapping[str, View], signature: Signature, arrays: Arrays, segments: Segments
) -> dict[str, Any]:
    # A plan is kept for the next call, but no buffers: a user may present a large episode once.
    return _planned(signature, tuple(views.items())).present(arrays, segments, pool=Pool())


@lru_cache(maxsize=32)
def _planned(signature: Signature, views: tuple[tuple[str, View], ...]) -> ArrayPlan:
    return ArrayPlan(Columns(signature, {}), dict(views))
