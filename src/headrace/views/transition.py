"""Transitions with n-step returns and frame stacks, as views."""

# Rules: views V18

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.checks import check_count
from headrace.store.intrinsics import AHEAD, prefetch
from headrace.store.jit import Float, Int, kernel
from headrace.store.layout import FINAL, StoreArrays
from headrace.store.memory import open_store
from headrace.store.window import follow
from headrace.views.view import View

SUM_PARTS = ("reward", "discount", "n")
"""The parts of a transition that are computed, not copied."""


@dataclass(frozen=True, eq=False, repr=False)
class TransitionView(View):
    """One part of an n-step transition; made by `transition`.

    Args:
        part: "reward", "next", "last", "discount" or "n".
        n_step: the most transitions that are put together.
        gamma: the discount of one step.

    >>> transition(3, 0.9)["n"]
    TransitionView('reward', part='n', n_step=3, gamma=0.9)
    """

    part: str = field(default="reward", kw_only=True)
    n_step: int = field(default=1, kw_only=True)
    gamma: float = field(default=0.99, kw_only=True)


def transition(n_step: int = 1, gamma: float = 0.99, frame_stack: int = 1) -> dict[str, View]:
    """The views of an n-step transition, for `Replay.sample`.

    With m = the transitions really used (fewer than `n_step` at the end of an episode or of what is known):
    `observation`, `action` of row t; `reward` the sum of gamma**k * reward[t+k] over k < m; `next_observation` of row
    t + m; `terminated`, `truncated` of row t + m - 1; `discount` gamma**m, 0 after termination; `n` is m. A learner
    uses `reward + discount * value(next_observation)`.

    A row whose next observation is not stored yet gives n = 0 and nothing to learn from: give the items of such a table
    `ItemRule(..., lookahead=n_step)`, and none is drawn before what it needs is there.

    Args:
        n_step: the most transitions that are put together.
        gamma: the discount of one step.
        frame_stack: S > 1 presents `[S, ...]`, oldest first, the first observation repeated at the start.

    Raises:
        ValueError: n_step or frame_stack < 1, gamma outside [0, 1].
        TypeError: n_step or frame_stack is not an integer.

    Source: R. Sutton, "Learning to Predict by the Methods of Temporal Differences" (1988), for n-step returns.
    """
    # Rules: views V18
    n_step = check_count("n_step", n_step, 1)
    frame_stack = check_count("frame_stack", frame_stack, 1)
    if not 0 <= gamma <= 1:
        raise ValueError(f"gamma: expected a number in [0, 1], got {gamma}")
    shift: int | str = 0 if frame_stack == 1 else f"{1 - frame_stack}:0"
    numbers = {"n_step": n_step, "gamma": float(gamma)}
    return {
        "observation": View("observation", shift=shift, fill="edge"),
        "action": View("action"),
        "reward": TransitionView("reward", part="reward", **numbers),  # type: ignore[arg-type]
        "next_observation": TransitionView("observation", shift=shift, fill="edge", part="next", **numbers),  # type: ignore[arg-type]
        "terminated": TransitionView("terminated", part="last", **numbers),  # type: ignore[arg-type]
        "truncated": TransitionView("truncated", part="last", **numbers),  # type: ignore[arg-type]
        "discount": TransitionView("reward", part="discount", **numbers),  # type: ignore[arg-type]
        "n": TransitionView("reward", part="n", **numbers),  # type: ignore[arg-type]
    }


@kernel
def add_up_in(
    memory: NDArray[np.uint8],
    places: NDArray[np.int64],
    page_rows: Int,
    rows: NDArray[np.int64],
    rewards: NDArray[np.floating],
    terminated: NDArray[Any],
    n_step: Int,
    gamma: Float,
    returns: NDArray[np.floating],
    discounts: NDArray[np.floating],
    counts: NDArray[np.int64],
    last: NDArray[np.int64],
    following: NDArray[np.int64],
) -> Int:
    """`add_up`, quick to call: the arrays are carved from their memory here."""
    store = open_store(memory, places, page_rows)
    return add_up(
        store, rows, rewards, terminated, n_step, gamma, returns, discounts, counts, last, following
    )


@kernel
def add_up(
    store: StoreArrays,
    rows: NDArray[np.int64],
    rewards: NDArray[np.floating],
    terminated: NDArray[Any],
    n_step: Int,
    gamma: Float,
    returns: NDArray[np.floating],
    discounts: NDArray[np.floating],
    counts: NDArray[np.int64],
    last: NDArray[np.int64],
    following: NDArray[np.int64],
) -> Int:
    """The n-step transition from each row; row -1 stands for an invented one.

    Args:
        rows: int64[M].
        rewards, terminated: columns of the store, the flags as bools or as bytes.
        returns, discounts, counts: [M], written: R, D and m.
        last: int64[M], written: the row of the last transition used, or -1.
        following: int64[M], written: the row of the next observation.

    Returns:
        How many of `last` are -1.
    """
    # Rules: trajectories A13
    missing = 0
    furthest = rows.shape[0] - 1
    for index in range(rows.shape[0]):
        ahead = rows[min(index + AHEAD, furthest)]
        prefetch(store.steps, ahead)
        prefetch(rewards, ahead)
        row = rows[index]
        total = 0.0
        scale = 1.0
        count = 0
        last[index] = -1
        while row >= 0 and count < n_step and not np.int64(store.steps[row]) & FINAL:
            after = follow(store, row, 1)
            if after < 0 and not terminated[row]:
                break
            # In doubles, which plain Python would not do by itself where rewards are float32.
            total += scale * np.float64(rewards[row])
            scale *= gamma
            count += 1
            last[index] = row
            if after < 0:
                break  # Ended without a final observation: nothing is bootstrapped, the reward counts.
            row = after
        ends = last[index] >= 0 and terminated[last[index]]
        returns[index] = total
        discounts[index] = 0.0 if ends or count == 0 else scale
        counts[index] = count
        following[index] = row
        missing += count == 0
    return missing
