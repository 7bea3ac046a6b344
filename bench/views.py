"""Views of whole episodes: the columns of a training batch, long windows, and the row that a policy sees."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import headrace as hr
from bench.case import Case, contest_case
from bench.measure import Contest, Goal, Plan

STEPS = 4_000
WINDOW = 50
WINDOWS = 1_000
_COLUMNS = {
    "observation": hr.View(),
    "action": hr.View(),
    "reward": hr.View(),
    "terminated": hr.View(),
    "next_observation": hr.View("observation", shift=1),
    "prev_action": hr.View("action", shift=-1),
    "prev_reward": hr.View("reward", shift=-1),
}
_STACK = {"stack": hr.View("observation", shift=f"{1 - WINDOW}:0")}


def cases() -> list[Case]:
    return [
        # At most 1 us a step, and at most 0.3 us a window.
        contest_case("views/7 of an episode", _episode, Goal(least=1e6)),
        contest_case("views/windows of 50", _windows, Goal(least=1 / 0.3e-6)),
    ]


@contextmanager
def _episode(plan: Plan) -> Iterator[Contest]:
    steps = plan.size(STEPS, 10)
    episode = _recorded(steps)
    rows = np.arange(steps)

    def bare() -> Any:
        before = np.maximum(rows - 1, 0)
        sources = (episode.observations, episode.actions, episode.rewards, episode.terminations)
        return [
            *(np.take(source, rows, 0) for source in sources),
            np.take(episode.observations, rows + 1, 0),
            np.take(episode.actions, before, 0),
            np.take(episode.rewards, before, 0),
        ]

    yield Contest(
        ours=_repeated(lambda: hr.views.apply(_COLUMNS, episode)),
        limit=_repeated(bare),
        limit_name="7 np.take",
        per_call=steps,
        unit="steps/s",
        verify=lambda out: _check_columns(out, steps),
    )


@contextmanager
def _windows(plan: Plan) -> Iterator[Contest]:
    count = plan.size(WINDOWS, 10)
    episode = _recorded(count)
    places = np.maximum(np.arange(count)[:, None] + np.arange(1 - WINDOW, 1), 0)
    yield Contest(
        ours=_repeated(lambda: hr.views.apply(_STACK, episode)),
        limit=_repeated(lambda: np.take(episode.observations, places, 0)),
        limit_name="np.take of known places",
        per_call=count,
        unit="windows/s",
        verify=lambda out: _check_windows(out["stack"], count),
    )


def _recorded(steps: int) -> hr.Episode:
    """An episode whose observation of step t is t + 1, four times; its action and its reward too."""
    numbers = np.arange(1, steps + 2)
    ends = np.arange(steps) == steps - 1
    observations = np.repeat(numbers, 4).reshape(-1, 4).astype(np.float32)
    rewards = numbers[:-1].astype(np.float32)
    return hr.Episode(observations, numbers[:-1], rewards, ends, np.zeros(steps, np.bool_))


def _repeated(call: Callable[[], Any]) -> Callable[[int], Any]:
    def run(count: int) -> Any:
        result = None
        for _ in range(count):
            result = call()
        return result

    return run


def _check_columns(out: dict[str, Any], steps: int) -> None:
    numbers = np.arange(1, steps + 1)
    for name, shift in {"observation": 0, "action": 0, "reward": 0, "next_observation": 1}.items():
        values = out[name].reshape(steps, -1)[:, 0]
        if not (values == numbers + shift).all():
            raise AssertionError(f"{name} has rows of other steps")
    if not (out["prev_action"] == numbers - 1).all() or not (out["prev_reward"] == numbers - 1).all():
        raise AssertionError("a previous action or reward is of another step")


def _check_windows(stack: Any, count: int) -> None:
    expected = np.maximum(np.arange(1, count + 1)[:, None] + np.arange(1 - WINDOW, 1), 0)
    if not (stack == expected[..., None]).all():
        raise AssertionError("a window has rows of other steps")
