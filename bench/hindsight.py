"""Batches of 256 transitions with goals of hindsight, against the same sample with the stored goals."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import headrace as hr
from bench.case import Case, contest_case
from bench.measure import Contest, Goal, Plan
from bench.steps import BATCH, table
from bench.uniform import samples

LANES = 16
EPISODE = 50
RATIO = 0.8


def cases() -> list[Case]:
    return [
        contest_case(
            f"hindsight/{strategy}",
            lambda plan, strategy=strategy: _contest(plan, strategy),
            Goal(ratio=0.25),
        )
        for strategy in ("future", "final", "episode")
    ]


def reward(achieved: Any, goal: Any, _info: Any) -> Any:
    """0 where the goal is reached, else -1, as the sparse rewards of gymnasium-robotics."""
    return -(np.abs(achieved - goal).max(1) > 0.5).astype(np.float32)


def _observation(time: int, observation: dict[str, Any]) -> dict[str, Any]:
    """What was achieved tells lane and time; goals are of a time that never comes."""
    observation["achieved_goal"][:, 1] = time
    observation["observation"][:, 1] = time
    return observation


@contextmanager
def _filled(steps: int) -> Iterator[hr.Replay]:
    """A replay of at most so many steps of an arm with goals: 25 numbers to see, 3 to reach, whole episodes."""
    observation = {
        "observation": np.zeros((LANES, 25), np.float32),
        "achieved_goal": np.zeros((LANES, 3), np.float32),
        "desired_goal": np.full((LANES, 3), -1, np.float32),
    }
    observation["achieved_goal"][:, 0] = observation["observation"][:, 0] = np.arange(LANES)
    no = np.zeros(LANES, np.bool_)
    step = {
        "observation": observation,
        "action": np.zeros((LANES, 4), np.float32),
        "reward": np.full(LANES, -1, np.float32),
        "terminated": no,
        "truncated": no,
    }
    signature = hr.Signature.like(
        {
            **{name: values[0] for name, values in step.items() if name != "observation"},
            "observation": {name: values[0] for name, values in observation.items()},
        }
    )
    with hr.Replay(signature, [table(steps)], seed=0) as replay:
        with replay.writer(lanes=LANES, items=[hr.ItemRule("t", 1, lookahead=1)]) as writer:
            for time in range(max(1, steps // (LANES * EPISODE)) * EPISODE):
                _observation(time, observation)
                writer.append(step)
                if time % EPISODE == EPISODE - 1:
                    writer.end_episode({"observation": _observation(time + 1, observation)})
            yield replay


@contextmanager
def _contest(plan: Plan, strategy: str) -> Iterator[Contest]:
    size = plan.size(1_000_000, 4 * BATCH)
    plain = hr.views.transition()
    views = hr.views.hindsight(
        plain,
        goal="observation/desired_goal",
        achieved="observation/achieved_goal",
        reward=reward,
        strategy=strategy,
        ratio=RATIO,
    )
    with _filled(size) as replay:
        yield Contest(
            ours=samples(replay, views, BATCH),
            limit=samples(replay, plain, BATCH),
            limit_name="the same without hindsight",
            verify=lambda batch: _check(batch.data, strategy),
        )


def _check(data: dict[str, Any], strategy: str) -> None:
    replaced, goal = data["relabelled"], data["observation"]["desired_goal"]
    time, goal_time = data["observation"]["achieved_goal"][:, 1], goal[:, 1]
    if not (goal[~replaced] == -1).all() or not (data["reward"][~replaced] == -1).all():
        raise AssertionError("a stored goal or reward has changed")
    if not (goal[replaced, 0] == data["observation"]["achieved_goal"][replaced, 0]).all():
        raise AssertionError("a goal is of another lane")
    episode_end = (time // EPISODE + 1) * EPISODE
    first = {"future": time + 1, "final": episode_end, "episode": episode_end - EPISODE}[strategy]
    if not ((goal_time >= first) & (goal_time <= episode_end))[replaced].all():
        raise AssertionError("a goal is of another part of the episode")
    if not ((data["reward"] == 0) == (goal_time == time + 1))[replaced].all():
        raise AssertionError("a reward is of another goal")
    if not (data["next_observation"]["desired_goal"] == goal).all():
        raise AssertionError("the next observation has another goal")
    if not 0.6 < replaced.mean() <= 1:
        raise AssertionError("too few goals were replaced")
