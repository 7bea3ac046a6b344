"""Rows of rollouts in a replay, one lane for each agent."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.replay.intake.row_writer import RowWriter
from headrace.rollouts import BatchWriter

STEP = {"observation": np.float32(0), "action": 0, "reward": 0.0, "terminated": False, "truncated": False}


def rows_of(episode, length, *, env=0, agent=0, flag="terminated"):
    """The rows of one episode; observations tell the episode and the time."""
    return [
        {
            "observation": np.float32(100 * episode + t),
            "action": t,
            "reward": 1.0,
            "terminated": flag == "terminated" and t == length - 1,
            "truncated": flag == "truncated" and t == length - 1,
            "next_observation": np.float32(100 * episode + t + 1),
            "episode_id": episode,
            "t": t,
            "env_id": env,
            "agent_index": agent,
        }
        for t in range(length)
    ]


def batch_of(rows):
    return hr.SampleBatch({name: np.array([row[name] for row in rows]) for name in rows[0]})


def tables():
    return [
        hr.Table(
            name, sampler=hr.selectors.Fifo(), remover=hr.selectors.Fifo(), max_size=999, max_times_sampled=1
        )
        for name in ("transitions", "episodes")
    ]


def new_replay(step=STEP):
    return hr.Replay(hr.Signature.like(step), tables(), seed=0)


RULES = [hr.NStepRule("transitions", 2, 0.5), hr.EpisodeRule("episodes", 50)]
# Rows are stored one by one where a function gives the priorities.
ONE_BY_ONE = [hr.NStepRule("transitions", 2, 0.5, lambda rows: 1.0), hr.EpisodeRule("episodes", 50)]


def stored(batches, rules=RULES, step=STEP):
    """The transitions as sets of numbers, and the observations of each episode."""
    with new_replay(step) as replay:
        with BatchWriter(replay, rules) as writer:
            for batch in batches:
                writer.write(batch)
        table = replay.table("transitions")
        sample = replay.sample("transitions", len(table), views=hr.views.transition(2, 0.5))
        columns = [
            sample[name].tolist()
            for name in ("observation", "action", "reward", "next_observation", "discount")
        ]
        episodes = replay.sample("episodes", len(replay.table("episodes"))).pack()
        parts = [
            tuple(episodes.data["observation"][begin:end].tolist())
            for begin, end in zip(episodes.offsets[:-1], episodes.offsets[1:], strict=True)
        ]
    return sorted(zip(*columns, strict=True)), sorted(parts)


LENGTHS = st.lists(st.integers(1, 5), min_size=1, max_size=3)
FLAGS = st.tuples(*[st.sampled_from(["terminated", "truncated", ""])] * 3)


@given(
    st.tuples(*[LENGTHS] * 3), FLAGS, st.lists(st.tuples(*[st.integers(1, 4)] * 3), min_size=1, max_size=4)
)
def test_fragments_of_any_length_are_stored_as_whole_episodes(lengths, flags, sizes):
    lanes = []
    for lane, (env, agent) in enumerate([(0, 0), (0, 1), (1, 0)]):
        # Without a flag the next row says that the episode is over: it has another id.
        episodes = [
            rows_of(10 * lane + number, length, env=env, agent=agent, flag=flag)
            for number, (length, flag) in enumerate(zip(lengths[lane], flags, strict=False))
        ]
        lanes.append([row for episode in episodes for row in episode])
    whole = [batch_of(lane) for lane in lanes]
    fragments = []
    for of_lanes in itertools.cycle(sizes):
        taken = [row for lane, size in zip(lanes, of_lanes, strict=True) for row in lane[:size]]
        lanes = [lane[size:] for lane, size in zip(lanes, of_lanes, strict=True)]
        if not taken:
            break
        fragments.append(batch_of(taken))
    assert stored(fragments) == stored(whole) == stored(fragments, ONE_BY_ONE)


def test_several_policies_and_padding():
    one, other = rows_of(0, 3, agent=0), rows_of(1, 2, agent=1)
    team = hr.MultiAgentBatch({"a": batch_of(one).chop(2).right_zero_pad(4), "b": batch_of(other)}, 3)
    transitions, episodes = stored([team])
    assert len(transitions) == 5
    assert episodes == [(0, 1, 2, 3), (100, 101, 102)]


def test_rows_of_a_worker():
    import gymnasium

    def create():
        return gymnasium.make("CartPole-v1")

    def policy(observation):
        return np.zeros(len(observation), np.int64)

    step = {**STEP, "observation": np.zeros(4, np.float32)}
    with (
        new_replay(step) as replay,
        hr.RolloutWorker(create, policy, rollout_fragment_length=7, num_envs=2, seed=0) as worker,
        BatchWriter(replay, RULES) as writer,
    ):
        batches = [worker.sample() for _ in range(6)]
        for batch in batches:
            writer.write(batch)
        writer.close()
        ids = {row for batch in batches for row in batch["episode_id"].tolist()}
        assert len(replay.table("transitions")) == 2 * 7 * 6
        assert len(replay.table("episodes")) == len(ids) > 2


def test_a_step_that_is_missing_begins_another_trajectory():
    rows = rows_of(0, 6, flag="")
    transitions, _ = stored([batch_of(rows[:2]), batch_of(rows[4:])])
    assert [(row[0], row[3]) for row in transitions] == [(0, 2), (1, 2), (4, 6), (5, 6)]
    jump = batch_of([*rows[:2], *rows[3:4]])
    transitions, _ = stored([jump])
    assert [(row[0], row[3]) for row in transitions] == [(0, 2), (1, 2), (3, 4)]


def test_rows_are_stored_in_blocks(monkeypatch):
    monkeypatch.setattr(RowWriter, "append_checked", None)
    transitions, episodes = stored([batch_of(rows_of(0, 40)), batch_of(rows_of(1, 2, flag=""))])
    assert (len(transitions), len(episodes)) == (42, 2)


@pytest.mark.parametrize("rules", [RULES[:1], ONE_BY_ONE[:1]])
def test_the_rest_of_a_batch_goes_on_where_a_full_store_stopped(rules):
    with hr.Replay(hr.Signature.like(STEP), tables(), capacity=200, seed=0) as replay:
        with BatchWriter(replay, rules) as writer:
            rows = rows_of(0, 1000)
            with pytest.raises(hr.StoreFull):
                writer.write(batch_of(rows))
            stored = replay.statistics().store.rows
            assert 190 < stored < 300
            replay.reset("transitions")
            writer.write(batch_of(rows[stored : stored + 3]))
        data = replay.sample("transitions", 5, views=hr.views.transition(2, 0.5)).data
    # Of the last rows before, the items were not made yet: their windows go on with the rest.
    assert data["observation"].tolist() == [stored - 2 + t for t in range(5)]
    assert data["next_observation"].tolist() == [stored + min(t, 3) for t in [0, 1, 2, 3, 3]]


def test_extras_are_columns_of_the_batch():
    step = {**STEP, "extras": {"logp": np.float32(0)}}
    batch = batch_of(rows_of(0, 3))
    with new_replay(step) as replay, BatchWriter(replay, RULES) as writer:
        with pytest.raises(hr.SpecError, match="extras: expected columns logp; missing: logp"):
            writer.write(batch)
        batch["logp"] = [0.5, 0.25, 0.125]
        writer.write(batch)
        assert replay.sample("episodes", 1)["extras"]["logp"].tolist() == [[0.5, 0.25, 0.125, 0]]


def test_what_does_not_fit_stores_nothing():
    good, bad = batch_of(rows_of(0, 2)), batch_of(rows_of(1, 2))
    bad["action"] = [0.5, 1.5]
    lacking = batch_of(rows_of(2, 2))
    del lacking["t"]
    with new_replay() as replay, BatchWriter(replay, RULES) as writer:
        for wrong, match in ((bad, "action"), (lacking, "missing: t")):
            with pytest.raises(hr.SpecError, match=match):
                writer.write(hr.MultiAgentBatch({"good": good, "wrong": wrong}, 2))
        assert replay.statistics().store.rows == 0
        writer.write(good)
        assert len(replay.table("episodes")) == 1


def test_closing():
    with new_replay() as replay:
        writer = BatchWriter(replay, RULES)
        writer.write(batch_of(rows_of(0, 2, flag="")))
        writer.close()
        writer.close()
        assert len(replay.table("episodes")) == 1
        with pytest.raises(hr.Closed):
            writer.write(batch_of(rows_of(1, 2)))
        with pytest.raises(KeyError):
            BatchWriter(replay, [hr.ItemRule("none", 1)])
