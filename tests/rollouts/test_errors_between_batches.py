"""Errors of postprocessing and callbacks: later batches are whole (views-rollouts R2, R3, R14)."""

import contextlib
from typing import Any

import pytest
from counting_rollouts import by_step, counters, worker
from scripted_agents import ScriptedEnv, Turn

import headrace as hr

HOOKS = (
    "postprocess_trajectory",
    "on_postprocess_trajectory",
    "on_episode_start",
    "on_episode_step",
    "on_episode_end",
    "on_sample_end",
)


class Policy:
    """Acts with the number of the step."""

    def compute_actions(self, input_dict):
        return by_step(input_dict["observation"])


class Callbacks:
    """Does nothing."""

    def on_sample_end(self, *, worker, samples):
        pass


def failing(hook: str, nth: int) -> tuple[Policy, Callbacks]:
    """Returns a policy and callbacks of which one method raises at its n-th call."""
    policy, callbacks, calls = Policy(), Callbacks(), iter(range(1, 10_000))

    def method(*_: Any, **__: Any) -> None:
        if next(calls) == nth:
            raise ArithmeticError(hook)

    setattr(callbacks if hook.startswith("on_") else policy, hook, method)
    return policy, callbacks


def agents(context: Any) -> ScriptedEnv:
    """Returns an environment with two agents, which act at each step."""
    return ScriptedEnv("ab", *[Turn("ab")] * (3 + 2 * context.env_index))


@pytest.mark.parametrize("options", [{}, {"horizon": 2, "soft_horizon": True}], ids=["", "soft"])
@pytest.mark.parametrize("batch_mode", ["truncate_episodes", "complete_episodes"])
@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("hook", HOOKS)
def test_an_error_leaves_later_batches_whole(hook: str, several: bool, batch_mode: str, options: Any):
    for nth in (1, 2, 3, 5, 8):
        policy, callbacks = failing(hook, nth)
        options = {**options, "batch_mode": batch_mode, "callbacks": callbacks}
        made = worker(
            agents if several else counters(3, 5), policy, num_envs=2, rollout_fragment_length=7, **options
        )
        check_later_batches(made, several=several, whole_episodes=batch_mode == "complete_episodes", nth=nth)


def check_later_batches(made: Any, *, several: bool, whole_episodes: bool, nth: int) -> None:
    """Samples eight times, of which one raises."""
    batches = []
    with made:
        for _ in range(8):
            with contextlib.suppress(ArithmeticError):
                batches.append(made.sample())
    assert len(batches) == 7, nth
    rows = [batch["default_policy"] if several else batch for batch in batches]
    steps = [steps_of(each) for each in rows]
    assert len(set().union(*steps)) == sum(each.count for each in rows), nth
    if whole_episodes:
        assert {len({episode for episode, _, _ in each}) for each in steps} == {2}, nth
        assert {sum(t == 0 for _, _, t in each) for each in steps} == {4 if several else 2}, nth
    else:
        assert {batch.env_steps() for batch in batches} == {14}, nth
        assert {each.count for each in rows} == {28 if several else 14}, nth


def cutting(nth: int, *, late: bool) -> type[hr.SampleCollector]:
    """Returns a collector whose n-th cut raises, before or after its rows are taken."""
    calls = iter(range(1, 10_000))

    class Cutting(hr.SampleCollector):
        def cut(self, key, *, end):
            fails = next(calls) == nth
            batch = super().cut(key, end=end) if late or not fails else None
            if fails:
                raise ArithmeticError("cut")
            return batch

    return Cutting


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("options", [{}, {"horizon": 2, "soft_horizon": True}], ids=["", "soft"])
@pytest.mark.parametrize("batch_mode", ["truncate_episodes", "complete_episodes"])
@pytest.mark.parametrize("several", [False, True])
def test_an_error_of_a_collector_leaves_later_batches_whole(
    several: bool, batch_mode: str, options: Any, late: bool
):
    for nth in (1, 2, 3, 6):
        made = worker(
            agents if several else counters(3, 5),
            Policy(),
            num_envs=2,
            rollout_fragment_length=7,
            batch_mode=batch_mode,
            sample_collector=cutting(nth, late=late),
            **options,
        )
        check_later_batches(made, several=several, whole_episodes=batch_mode == "complete_episodes", nth=nth)


def steps_of(batch: Any) -> set[tuple[int, ...]]:
    """Returns the episode, agent and step of each row."""
    return set(zip(*(batch[name].tolist() for name in ("episode_id", "agent_index", "t")), strict=True))
