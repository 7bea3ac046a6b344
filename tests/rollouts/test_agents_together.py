"""Agents of one environment: aligned across soft horizons, and told apart where one of them is wrong."""

from typing import Any

import numpy as np
import pytest
from counting_rollouts import worker
from gymnasium import spaces
from scripted_agents import ScriptedEnv, Turn, Watched, by_time

import headrace as hr

DEFAULT = "default_policy"
# Agent b acts at times 0 and 3.
RARELY_B = (Turn("a"), Turn("a"), Turn("ab", {"a": 1, "b": 1}), Turn("a"), Turn("ab", {"a": 1, "b": 1}))


@pytest.mark.parametrize("length", [1, 2, 5])
@pytest.mark.parametrize("horizon", [1, 2, 3, 4])
def test_agents_are_aligned_across_a_soft_horizon(horizon: int, length: int):
    # H2, M9: look-back goes on, also to what others did, and acting shows what training shows
    views = {
        "b acted": hr.View("action", shift="-3:-1", agent="b", mask=True),
        "b saw": hr.View("observation", shift="-2:0", agent="b", mask=True),
    }

    def sampled(policy: Any, **options: Any) -> list[hr.SampleBatch]:
        env = ScriptedEnv("ab", *RARELY_B)
        with worker(lambda: env, policy, rollout_fragment_length=length, views=views, **options) as made:
            batches = [made.sample().policy_batches for _ in range(10 // length)]
        return [batch[DEFAULT] for batch in batches if batch]

    policy = Watched()
    plain = {tuple(row["observation"]): row for batch in sampled(by_time) for row in batch.rows()}
    soft = [row for batch in sampled(policy, horizon=horizon, soft_horizon=True) for row in batch.rows()]
    assert len(soft) == len(plain)
    acting = {
        tuple(observed): (step, i) for step in policy.seen for i, observed in enumerate(step["observation"])
    }
    for row in soft:
        observed = tuple(row["observation"])
        step, i = acting[observed]
        for name in views:
            for column in (name, f"{name}_mask"):
                np.testing.assert_array_equal(row[column], plain[observed][column])
                np.testing.assert_array_equal(row[column], step[column][i])


@pytest.mark.parametrize("broken", [0, 1, 2])
def test_an_observation_of_another_shape_drops_the_episode_of_its_environment_alone(broken: int):
    # R14
    class Failing(ScriptedEnv):
        def step(self, actions):
            observations, *others = super().step(actions)
            if (self.episode, self.time) == (0, 2):
                observations["b"] = np.zeros(4, np.int64)
            return observations, *others

    def create(context):
        kind = Failing if context.env_index == broken else ScriptedEnv
        return kind("ab", *[Turn("ab")] * 6)

    with worker(create, by_time, num_envs=3, rollout_fragment_length=5) as made:
        with pytest.raises(hr.SpecError, match=f"environment {broken}: agent 'b': observation"):
            made.sample()
        batch = made.sample()
        assert batch.env_steps() == 15
    rows = batch[DEFAULT]
    for index in range(3):
        seen = rows["observation"][rows["env_id"] == index]
        assert seen[:, 1].tolist() == [int(index == broken)] * 10
        assert seen[:, 2].tolist() == [0, 1, 2, 3, 4] * 2


@pytest.mark.parametrize("time", [0, 2])
@pytest.mark.parametrize(
    ("space", "good", "bad", "told"),
    [
        (spaces.Box(0, 255, (2,), np.uint8), np.zeros(2, np.uint8), np.full(2, 0.5), "float is never stored"),
        (spaces.Box(0, 255, (2,), np.uint8), [7, 8], [7.5, 8.0], "float is never stored"),
        (spaces.Box(0, 255, (2,), np.uint8), np.full(2, 200), np.full(2, 300), "300"),
        (spaces.Discrete(4), 3, 1.5, "float is never stored"),
        (spaces.Discrete(4), np.int32(3), None, "got NoneType"),
        (spaces.Box(0, 1, (1, 2)), np.zeros((1, 2)), np.zeros((3, 2)), "nothing is broadcast"),
        (spaces.Dict(x=spaces.Discrete(4)), {"x": 3}, {"y": 3}, "missing observation/x"),
        (spaces.Tuple([spaces.Discrete(4)]), (3,), (), "observation"),
    ],
)
@pytest.mark.parametrize("names", ["ab", "a"])
def test_observations_that_columns_cannot_hold_are_refused(
    space: Any, good: Any, bad: Any, told: str, time: int, names: str
):
    # M1, R14: fractions of floats in columns of integers would be lost; both where all agents go on together and
    # where one of them pauses
    class Showing(ScriptedEnv):
        is_wrong = False

        def observation_space(self, agent):
            return space

        def _seen(self, names):
            is_bad = self.is_wrong and (self.episode, self.time) == (0, time)
            return {name: bad if is_bad and name == "a" else good for name in names}

    def create(context):
        env = Showing("ab", *[Turn(names)] * 3)
        env.is_wrong = context.env_index == 1
        return env

    def policy(seen):
        return np.zeros(hr.SampleBatch({"seen": seen}).count, np.int64)

    with worker(create, policy, num_envs=2, rollout_fragment_length=3) as made:
        with pytest.raises(hr.SpecError, match=f"environment 1: agent 'a': .*{told}"):
            made.sample()
        assert made.sample().env_steps() == 6


@pytest.mark.parametrize("bad", [None, "many"])
def test_a_reward_that_is_not_a_number_drops_the_episode_of_its_environment_alone(bad: Any):
    # R14: the reward of one policy's agent is bad, those of the other policy's agents are not written either
    class Failing(ScriptedEnv):
        def step(self, actions):
            observations, rewards, *others = super().step(actions)
            if (self.episode, self.time) == (0, 2):
                rewards["b"] = bad
            return observations, rewards, *others

    def create(context):
        return (Failing if context.env_index == 1 else ScriptedEnv)("ab", *[Turn("ab", {"a": 1, "b": 2})] * 6)

    policies = {"of a": by_time, "of b": by_time}
    mapping = {"a": "of a", "b": "of b"}
    with worker(
        create,
        policies,
        num_envs=2,
        rollout_fragment_length=5,
        policy_mapping_fn=lambda agent, _: mapping[agent],
    ) as made:
        with pytest.raises(
            hr.SpecError, match="environment 1: agent 'b': reward: expected a number at env step 1"
        ):
            made.sample()
        batch = made.sample()
    assert batch.env_steps() == 10
    for number, policy_id in enumerate(policies, start=1):
        rows = batch[policy_id]
        for index in range(2):
            own = rows["env_id"] == index
            assert rows["observation"][own][:, 1].tolist() == [int(index == 1)] * 5
            assert rows["observation"][own][:, 2].tolist() == [0, 1, 2, 3, 4]
            assert rows["reward"][own].tolist() == [number] * 5


def test_a_policy_is_mapped_knowing_the_rewards_of_the_episode_so_far():
    # M2, C2: c joins after two steps, of which a and b have had the rewards
    told = []

    def mapping(agent: Any, episode: Any) -> str:
        told.append((agent, episode.length, dict(episode.agent_rewards)))
        return DEFAULT

    earned = {"a": 1, "b": 2}
    turns = [Turn("ab", earned), Turn("ab", earned), Turn("abc", earned), Turn("abc", {**earned, "c": 3})]
    env = ScriptedEnv("ab", *turns)
    with worker(lambda: env, by_time, rollout_fragment_length=3, policy_mapping_fn=mapping) as made:
        made.sample()
    agent, length, rewards = told[2]
    assert (agent, rewards) == ("c", {"a": float(length), "b": 2.0 * length})
    assert length > 0


def test_a_row_of_an_open_step_shows_what_others_did_when_it_began():
    # M4, M9, R8: the step of a is open across two cuts
    def create():
        return ScriptedEnv("a", Turn("b"), Turn("ab"), Turn("b"), Turn("b"), Turn("a"))

    views = {"theirs": hr.View("action", shift=-1, agent="b")}
    shown = []
    for length in (2, 6):
        with worker(create, by_time, rollout_fragment_length=length, views=views) as made:
            batches = [made.sample()[DEFAULT] for _ in range(6 // length)]
        shown.append(
            sorted((*row["observation"], row["theirs"]) for batch in batches for row in batch.rows())
        )
    assert shown[0] == shown[1]
    assert (0, 0, 2, 11) in shown[0]
