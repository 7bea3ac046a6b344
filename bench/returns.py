"""Advantages of 64 environments and 128 steps, against one `np.cumsum` of an array of that shape."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from bench.case import Case, contest_case
from bench.measure import Contest, Goal, Run
from headrace.trajectories import gae

SHAPE = (64, 128)
GAMMA, LAMBDA = 0.99, 0.95
# At most three times as long as the sum.
GOAL = Goal(ratio=1 / 3)


def cases() -> list[Case]:
    return [
        contest_case("returns/gae", lambda _: _contest(_as_given), GOAL),
        contest_case("returns/gae, torch", lambda _: _contest(_as_tensor), GOAL),
    ]


def _as_given(array: Any) -> Any:
    return array


def _as_tensor(array: Any) -> Any:
    import torch

    return torch.from_numpy(array)


@contextmanager
def _contest(convert: Callable[[Any], Any]) -> Iterator[Contest]:
    rng = np.random.default_rng(0)
    arrays = {
        name: rng.normal(size=SHAPE).astype(np.float32) for name in ("rewards", "values", "next_values")
    }
    arrays |= {name: rng.random(SHAPE) < 0.01 for name in ("terminated", "truncated")}
    given = {name: convert(array) for name, array in arrays.items()}
    wanted = _advantages(arrays)

    def verify(found: Any) -> None:
        np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-4, atol=1e-4)

    yield Contest(
        ours=_repeated(lambda: gae(**given, gamma=GAMMA, lambda_=LAMBDA)[0]),
        limit=_repeated(lambda: np.cumsum(arrays["rewards"], axis=-1)),
        limit_name="np.cumsum",
        verify=verify,
        unit="calls/s",
    )


def _repeated(call: Callable[[], Any]) -> Run:
    def run(count: int) -> Any:
        for _ in range(count):
            found = call()
        return found

    return run


def _advantages(arrays: dict[str, Any]) -> Any:
    """The advantages, step by step."""
    found, later = np.zeros(SHAPE), np.zeros(SHAPE[0])
    for t in reversed(range(SHAPE[1])):
        step = {name: array[:, t] for name, array in arrays.items()}
        ended = step["terminated"] | step["truncated"]
        following = GAMMA * np.where(step["terminated"], 0, step["next_values"])
        later = step["rewards"] + following - step["values"] + GAMMA * LAMBDA * np.where(ended, 0, later)
        found[:, t] = later
    return found
