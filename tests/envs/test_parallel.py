"""Environments with several agents in collectors: one lane for each agent (collectors CE2, CE7; views-rollouts M)."""

import sys

import cloudpickle
import gymnasium
import numpy as np
import pytest
from pettingzoo import ParallelEnv
from pettingzoo.utils import aec_to_parallel, parallel_to_aec

import headrace as hr
from headrace.envs import adapt, is_environment, make_stepper, new_columns
from headrace.errors import SpecError
from headrace.spec import ArraySpec
from headrace.testing import CounterEnv
from headrace.testing.agents import CounterAgents

cloudpickle.register_pickle_by_value(sys.modules[__name__])


def expected_rows(lengths, steps):
    """Episode and step of each agent at each step of the environment; -1 where it waits."""
    longest = max(lengths)
    episode, step = np.divmod(np.arange(steps), longest)
    return [
        (np.where(step < length, episode, -1), np.where(step < length, step, -1), step == length - 1)
        for length in lengths
    ]


@pytest.mark.parametrize("kind", [hr.Collector, hr.AsyncCollector])
@pytest.mark.parametrize("ending", ["terminated", "truncated"])
def test_agents_that_end_at_different_steps(kind, ending):
    """CE7, CB6, M5: one that ended waits, masked, for the last one, with trajectories of its own."""
    lengths = [2, 4, 1]
    with kind(
        CounterAgents,
        create_env_kwargs={"episode_lengths": lengths, "ending": ending},
        frames_per_batch=15,
    ) as collector:
        batches = [collector.next(timeout=30) for _ in range(3)]
    assert [batch.shape for batch in batches] == [(3, 5)] * 3
    whole = {name: np.concatenate([b[name] for b in batches], axis=1) for name in batches[0]}
    for lane, (episode, step, last) in enumerate(expected_rows(lengths, 15)):
        mask = step >= 0
        np.testing.assert_array_equal(whole["mask"][lane], mask)
        seen = np.stack([np.full(15, lane), episode, step], axis=1)
        np.testing.assert_array_equal(whole["observation"][lane][mask], seen[mask])
        np.testing.assert_array_equal(whole["next_observation"][lane][mask], np.add(seen, [0, 0, 1])[mask])
        np.testing.assert_array_equal(whole["t"][lane][mask], step[mask])
        np.testing.assert_array_equal(whole["reward"][lane][mask], (4 * step + whole["action"][lane])[mask])
        np.testing.assert_array_equal(whole[ending][lane], last)
        ids = whole["episode_id"][lane][mask]
        np.testing.assert_array_equal(np.diff(ids) > 0, np.diff(episode[mask]) > 0)
        for name in ("reward", "observation", "next_observation", "action", "t"):
            assert not whole[name][lane][~mask].any()
    assert sum(batch.frames for batch in batches) == whole["mask"].sum()
    assert len(np.unique(whole["episode_id"])) == 12 + 1  # Four episodes of three agents, and -1.


@pytest.mark.parametrize("kind", [hr.Collector, hr.AsyncCollector])
def test_a_replay(kind):
    """CF2, CE7: one item for each transition of each agent, none for a row in which it waited."""
    kwargs = {"create_env_kwargs": {"episode_lengths": [1, 3]}}
    signature = hr.collectors.signature(CounterAgents, **kwargs)
    table = hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=1000)
    with hr.Replay(signature, [table], seed=0) as replay:
        with kind(
            CounterAgents, frames_per_batch=12, total_frames=12, replay_buffer=replay, **kwargs
        ) as collector:
            list(collector)
        sample = replay.sample("t", 200, views=hr.views.transition()).data
        observation, after = sample["observation"], sample["next_observation"]
        np.testing.assert_array_equal(after, np.add(observation, [0, 0, 1]))
        assert {tuple(row) for row in observation[:, [0, 2]]} == {(0, 0), (1, 0), (1, 1), (1, 2)}


def test_copies():
    """CE1, CE2: n copies by n calls; the lanes of a copy stand together."""
    built = []

    def create():
        built.append(CounterAgents([5, 5], first_copy=2 * len(built)))
        return built[-1]

    with hr.Collector(create, frames_per_batch=12, num_envs=3, seed=7) as collector:
        batch = collector.next()
        assert collector.env is built[0]
    assert len(built) == 3
    assert batch["observation"][:, 0, 0].tolist() == [0, 1, 2, 3, 4, 5]
    assert [env.counters["agent0"].seeds[0] for env in built] == [7, 9, 11]
    assert [env.closed for env in built] == [1, 1, 1]


def test_a_policy_with_a_memory():
    """CP6: the state of an agent that waits is the initial one when it plays again."""

    class Counting:
        initial_state = (np.zeros((), np.int64),)

        def compute_actions(self, input_dict):
            state = input_dict["state_in_0"]
            return np.zeros(len(state), np.int64), [state + 1], {}

    batch = hr.Collector(lambda: CounterAgents([2, 5]), Counting(), frames_per_batch=24).next()
    mask = batch["mask"]
    np.testing.assert_array_equal(batch["state_in_0"][mask], batch["t"][mask])


def test_info_columns():
    """CE5: each agent's own entry."""
    batch = hr.Collector(
        lambda: CounterAgents([2, 3]), frames_per_batch=12, info_columns={"count": ArraySpec((), np.int64)}
    ).next()
    np.testing.assert_array_equal(batch["count"], batch["t"])
    with pytest.raises(SpecError, match="environment 0: agent 'agent0': legal: expected .* at reset"):
        hr.Collector(
            lambda: CounterAgents([2]), frames_per_batch=1, info_columns={"legal": ArraySpec((), bool)}
        ).next()


class Zoo(CounterAgents, ParallelEnv):
    """Counters that PettingZoo's wrappers take."""

    render_mode = None


class Scripted(ParallelEnv):
    """Gives the observations and flags of a script: for each step the agents observed, and the flags by agent."""

    metadata = {"name": "scripted"}  # noqa: RUF012
    possible_agents = ["a", "b"]  # noqa: RUF012

    def __init__(self, first, script):
        self.first, self.script, self.clock, self.agents = first, script, 0, []
        self.given = []

    def observation_space(self, agent):
        return gymnasium.spaces.Box(0, 99, (1,), np.int64)

    def action_space(self, agent):
        return gymnasium.spaces.Discrete(2)

    def seen(self, agents):
        return {agent: np.array([self.clock]) for agent in agents}

    def reset(self, seed=None, options=None):
        self.clock, self.agents = 0, list(self.possible_agents)
        return self.seen(self.first), {}

    def step(self, actions):
        self.given.append(sorted(actions))
        observed, terminated, truncated = self.script[self.clock]
        self.clock += 1
        rewards = dict.fromkeys(actions, 1.0)
        flags = [dict.fromkeys(names, True) for names in (terminated, truncated)]
        return self.seen(observed), rewards, *flags, {}


def test_agents_that_come_late():
    """M3: its trajectory begins when it is first observed."""
    env = Scripted("a", [("ab", "", ""), ("ab", "", ""), ("ab", "ab", "")])
    batch = hr.Collector(env, frames_per_batch=12).next()
    assert batch["mask"].tolist() == [[True] * 6, [False, True, True] * 2]
    assert batch["t"][1].tolist() == [0, 0, 1, 0, 0, 1]
    assert batch["observation"][1, :, 0].tolist() == [0, 1, 2, 0, 1, 2]
    assert env.given == [["a"], ["a", "b"], ["a", "b"]] * 2


def test_an_end_for_all_truncates_the_others():
    """M5: nothing was said of `b`: its row is truncated; `a` is not."""
    env = Scripted("ab", [("ab", "", ""), ("ab", ["a", "__all__"], "")])
    batch = hr.Collector(env, frames_per_batch=4).next()
    assert batch["terminated"].tolist() == [[False, True], [False, False]]
    assert batch["truncated"].tolist() == [[False, False], [False, True]]


def test_an_end_without_an_observation():
    """M6: the step is kept; its next observation is the last one known."""
    env = Scripted("ab", [("ab", "", ""), ("b", "a", ""), ("b", "b", "")])
    batch = hr.Collector(env, frames_per_batch=6).next()
    assert batch["next_observation"][0, :, 0].tolist() == [1, 1, 0]
    assert batch["next_observation"][1, :, 0].tolist() == [1, 2, 3]
    assert batch["mask"].tolist() == [[True, True, False], [True] * 3]


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ([("a", "", "")], "agent 'b': expected an observation at step 0.*hr.RolloutWorker"),
        ([("ab", "a", ""), ("ab", "", "")], "agent 'a': expected nothing more in this episode"),
        ([("abc", "", "")], "expected agents of possible_agents, .*got 'c'"),
    ],
)
def test_steps_that_are_refused(script, message):
    """M7: errors name environment and agent."""
    with pytest.raises(SpecError, match=f"environment 0: .*{message}|environment 0: {message}"):
        hr.Collector(Scripted("ab", script), frames_per_batch=4).next()


def test_a_missing_reward():
    """M7."""

    class Silent(Scripted):
        def step(self, actions):
            returned = super().step(actions)
            return returned[0], {"b": 1.0}, *returned[2:]

    with pytest.raises(SpecError, match="environment 0: agent 'a': expected a reward at step 0"):
        hr.Collector(Silent("ab", [("ab", "", "")]), frames_per_batch=2).next()


def test_an_exception_names_environment_step_and_actions():
    """Section 17."""
    with pytest.raises(IndexError) as caught:
        hr.Collector(Scripted("ab", [("ab", "", "")]), frames_per_batch=4).next()
    assert caught.value.__notes__[0].startswith(
        "raised by environment 0 at step 1 of its episode, actions {'a': "
    )


def test_what_cannot_be():
    """CE5: said by the constructor."""
    other = CounterAgents([1, 2])
    other.counters["agent1"].action_space = gymnasium.spaces.Discrete(9)
    with pytest.raises(
        SpecError, match=r"agent 'agent1': action_space: expected Discrete\(4\).*RolloutWorker"
    ):
        make_stepper(other)
    with (
        hr.Collector(lambda: CounterAgents([2, 2]), frames_per_batch=2) as collector,
        pytest.raises(ValueError, match="reset_idx: .*several agents"),
    ):
        collector.reset([True, False])
    with pytest.raises(ValueError, match="agents act in turn; wrap it with pettingzoo.utils.aec_to_parallel"):
        make_stepper(parallel_to_aec(Zoo([1])))
    nameless = CounterAgents([1])
    nameless.possible_agents = []
    with pytest.raises(ValueError, match="possible_agents: expected the names of all agents"):
        make_stepper(nameless)


def test_what_is_recognised():
    """CE1."""
    env = CounterAgents([1])
    assert is_environment(env)
    assert not is_environment(CounterAgents)
    assert make_stepper(adapt(env)).environments == (env,)
    assert make_stepper(env).get_attr("possible_agents") == ["agent0"]


def test_wrappers_of_pettingzoo():
    """CE2: the same steps come through PettingZoo's own conversions."""
    env = aec_to_parallel(parallel_to_aec(Zoo([3, 3])))
    batch = hr.Collector(env, frames_per_batch=12, seed=1).next()
    bare = hr.Collector(Zoo([3, 3]), frames_per_batch=12, seed=1).next()
    for name in ("observation", "next_observation", "reward", "terminated", "truncated", "mask", "t"):
        np.testing.assert_array_equal(batch[name], bare[name])


def test_rows_of_waiting_lanes_are_written():
    """The rows of agents that wait hold no garbage of the caller's arrays."""
    stepper = make_stepper(CounterAgents([1, 3]))
    row, other = (new_columns(stepper.observation_signature, 2) for _ in range(2))
    other["observation"][:] = 77
    stepper.reset(row)
    stepper.step({"action": np.zeros(2, np.int64)}, row)
    stepper.step({"action": np.zeros(2, np.int64)}, other)
    assert other["observation"].tolist() == [[0, 0, 1], [1, 0, 2]]


def test_single_environments_with_other_attributes_are_not_agents():
    """CE1: a gymnasium environment stays one, whatever it is called."""

    class Named(CounterEnv):
        agents = ("one",)

    assert make_stepper(Named(3)).num_envs == 1
