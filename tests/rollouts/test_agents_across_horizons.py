"""Agents that join, pause and leave, across soft horizons (views-rollouts H2, M9, C3)."""

from typing import Any

import numpy as np
import pytest
from counting_rollouts import worker
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_agents import ScriptedEnv, Watched, by_time, script

import headrace as hr

VIEWS = {
    "mine": hr.View("action", shift="-2:-1", mask=True),
    "stack": hr.View("observation", shift="-2:0", mask=True),
    "b acted": hr.View("action", shift=-1, agent="b", mask=True),
    "b saw": hr.View("observation", shift="-2:0", agent="b", mask=True),
}


class Derived(hr.SampleCollector):
    """Takes every step as the default collector does, one by one."""

    def add_step(self, *arguments: Any, **named: Any) -> Any:
        return super().add_step(*arguments, **named)


@pytest.mark.parametrize("options", [{}, {"sample_collector": Derived}], ids=["default", "derived"])
@settings(max_examples=30, deadline=None)
@given(
    draws=st.lists(st.tuples(st.integers(1, 7), st.integers(0, 7) | st.just(0)), min_size=1, max_size=9),
    horizon=st.integers(1, 6),
    length=st.integers(1, 5),
)
def test_a_soft_horizon_changes_neither_rows_nor_what_is_seen(
    draws: list[tuple[int, int]], horizon: int, length: int, options: dict[str, Any]
):
    turns = script(draws)

    def rows(policy: Any, **more: Any) -> dict[tuple[int, ...], dict[str, Any]]:
        with worker(
            lambda: ScriptedEnv("a", *turns), policy, rollout_fragment_length=length, views=VIEWS, **more
        ) as made:
            batches = [made.sample().policy_batches for _ in range(3 * len(turns) // length + 2)]
        parts = [batch["default_policy"] for batch in batches if batch]
        return {tuple(row["observation"]): row for part in parts for row in part.rows()}

    policy = Watched()
    plain = rows(by_time)
    soft = rows(policy, horizon=horizon, soft_horizon=True, **options)
    assert soft.keys() == plain.keys()
    acting = {
        tuple(observed): (step, i) for step in policy.seen for i, observed in enumerate(step["observation"])
    }
    for key, row in soft.items():
        for name in ("action", "reward", "next_observation", "terminated", "truncated"):
            np.testing.assert_array_equal(row[name], plain[key][name], f"{name} of {key}")
        step, i = acting[key]
        for name in [*VIEWS, *(f"{name}_mask" for name in VIEWS)]:
            np.testing.assert_array_equal(row[name], plain[key][name], f"{name} of {key}, trained on")
            np.testing.assert_array_equal(row[name], step[name][i], f"{name} of {key}, acted on")
