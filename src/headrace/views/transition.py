"""Transitions with n-step returns and frame stacks, as views."""

# Rules: views V18

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.checks import check_count
from headrace.views.view import View

SUM_PARTS = ("reward", "discount", "n")
"""The parts of a transition that are computed, not copied."""


@dataclass(frozen=True, eq=False, repr=False)
class TransitionView(View):
    """One part of an n-step transition; made by `transition`.

    Args:
        part: "reward", "next", "last", "discount" or "n".
        n_step: maximum number of transitions summed.
        gamma: the discount of one step.

    >>> transition(3, 0.9)["n"]
    TransitionView('reward', part='n', n_step=3, gamma=0.9)
    """

    part: str = field(default="reward", kw_only=True)
    n_step: int = field(default=1, kw_only=True)
    gamma: float = field(default=0.99, kw_only=True)

    @property
    def furthest(self) -> int:
        """The largest offset of the rows that are shown or used."""
        return self.n_step + max(self.offsets)


def transition(n_step: int = 1, gamma: float = 0.99, frame_stack: int = 1) -> dict[str, View]:
    """Returns the views of an n-step transition, for `Replay.sample`.

    Let m be the number of transitions summed (fewer than `n_step` at the end of an episode or of the stored rows):
    `observation`, `action` of row t; `reward` the sum of gamma**k * reward[t+k] over k < m; `next_observation` of row
    t + m; `terminated`, `truncated` of row t + m - 1; `discount` gamma**m, 0 after termination; `n` is m. A learner
    uses `reward + discount * value(next_observation)`.

    A row whose next observation is not stored yet gives n = 0 and no target. With `ItemRule(..., lookahead=n_step)` an
    item is made only when the steps that it needs are stored.

    Args:
        n_step: maximum number of transitions summed.
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
