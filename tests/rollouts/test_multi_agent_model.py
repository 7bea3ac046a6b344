"""Rollouts of several agents against a plain list of every agent's steps (views-rollouts M1 to M6, R2, R8)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from counting_rollouts import worker
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_agents import AGENTS, ScriptedEnv, Turn, by_time, script

import headrace as hr


def expected_rows(turns: Sequence[Turn], steps: int) -> list[tuple[Any, ...]]:
    """Lists (agent, episode, env_t, t, reward, next time, terminated, truncated) of the rows complete after `steps`."""
    rows: list[tuple[Any, ...]] = []
    time = episode = 0
    open_steps: dict[str, list[Any]] = {}
    counts: dict[str, int] = {}
    done: set[str] = set()

    def begin(agent: str) -> None:
        open_steps[agent] = [time, 0.0]
        counts.setdefault(agent, 0)

    begin("a")
    for _ in range(steps):
        turn = turns[time]
        time += 1
        last_time = {agent: start for agent, (start, _) in open_steps.items()}
        for agent in open_steps:
            open_steps[agent][1] += (turn.rewards or {}).get(agent, 0.0)
        is_over = time == len(turns) or all(
            agent in done or agent in turn.terminated for agent in {*counts, *turn.seen}
        )
        for agent in list(open_steps):
            ends = agent in turn.terminated
            if agent not in turn.seen and not ends and not is_over:
                continue
            start, reward = open_steps.pop(agent)
            after = time if agent in turn.seen else last_time[agent]
            rows.append(
                (
                    AGENTS.index(agent),
                    episode,
                    start,
                    counts[agent],
                    reward,
                    after,
                    ends,
                    is_over and not ends,
                )
            )
            counts[agent] += 1
            if ends:
                done.add(agent)
            elif not is_over:
                begin(agent)
        for agent in turn.seen:
            if agent not in counts and not is_over:
                begin(agent)
        if is_over:
            time, episode = 0, episode + 1
            open_steps, counts, done = {}, {}, set()
            begin("a")
    return sorted(rows)


@settings(max_examples=60, deadline=None)
@given(
    draws=st.lists(st.tuples(st.integers(1, 7), st.integers(0, 7) | st.just(0)), min_size=1, max_size=7),
    fragments=st.tuples(st.integers(1, 6), st.integers(1, 6)),
)
def test_any_fragment_length_gives_the_rows_of_the_script(
    draws: list[tuple[int, int]], fragments: tuple[int, int]
):
    turns = script(draws)
    total = fragments[0] * fragments[1]
    views = {
        "last": hr.View("action", shift=-1, mask=True),
        "theirs": hr.View("action", shift=-1, agent="b", mask=True),
    }
    collected = []
    for fragment in fragments:
        with worker(
            lambda: ScriptedEnv("a", *turns), by_time, rollout_fragment_length=fragment, views=views
        ) as made:
            samples = [made.sample() for _ in range(total // fragment)]
        assert sum(batch.env_steps() for batch in samples) == total
        parts = [batch["default_policy"] for batch in samples if "default_policy" in batch.policy_batches]
        whole = hr.SampleBatch.concat(parts)
        assert sum(batch.agent_steps() for batch in samples) == whole.count
        collected.append(whole)
    wanted = expected_rows(turns, total)
    for whole in collected:
        assert whole.count == len(wanted)
        if whole.count:
            check(whole, wanted)


def check(whole: hr.SampleBatch, wanted: list[tuple[Any, ...]]) -> None:
    agents, episodes, times = whole["observation"].T.tolist()
    names = ("t", "reward")
    columns = [whole[name].tolist() for name in names]
    following = whole["next_observation"][:, 2].tolist()
    flags = [whole[name].tolist() for name in ("terminated", "truncated")]
    rows = list(zip(agents, episodes, whole["env_t"].tolist(), *columns, following, *flags, strict=True))
    assert sorted(rows) == wanted
    assert times == whole["env_t"].tolist()
    acted = {(agent, episode, time): 10 * agent + time for agent, episode, time, *_ in rows}
    by_place = {(agent, episode, t): 10 * agent + time for agent, episode, time, t, *_ in rows}
    for i, (agent, episode, time, t, *_) in enumerate(rows):
        assert whole["action"][i] == 10 * agent + time
        assert whole["last"][i] == by_place.get((agent, episode, t - 1), 0)
        assert whole["last_mask"][i] == (t > 0)
        if (1, episode, time - 1) in acted:
            assert whole["theirs"][i] == acted[1, episode, time - 1]
            assert whole["theirs_mask"][i]
    assert np.array_equal(whole["theirs"] != 0, whole["theirs_mask"])
