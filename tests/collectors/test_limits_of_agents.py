"""`max_frames_per_traj` with several agents, which begin and end together (collectors CR5; views-rollouts M3, M5)."""

import sys
from functools import partial

import cloudpickle
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_agents import ScriptedEnv, Turn

import headrace as hr
from headrace.envs import new_columns
from headrace.envs.adapters.pettingzoo_parallel import ParallelStepper
from headrace.testing.agents import CounterAgents

cloudpickle.register_pickle_by_value(sys.modules[__name__])

lengths_of_agents = st.lists(st.integers(1, 6), min_size=2, max_size=3)


class Counting:
    """Acts by what it sees; its state counts the steps of a trajectory."""

    initial_state = (np.zeros((), np.int64),)

    def compute_actions(self, input_dict):
        state = input_dict["state_in_0"]
        return action_of(input_dict["observation"]), [state + 1], {}


def action_of(observation):
    return (observation[..., 1] + 2 * observation[..., 2] + observation[..., 0]) % 4


def modelled(lengths, limit, steps, first):
    """Returns the columns of the agents of one copy, step by step: [agents, steps]."""
    rows = {name: [] for name in ("mask", "episode", "t", "terminated", "truncated")}
    episode = clock = 0
    for _ in range(steps):
        plays = [clock < length for length in lengths]
        rows["mask"].append(plays)
        rows["episode"].append([episode] * len(lengths))
        rows["t"].append([clock if each else 0 for each in plays])
        rows["terminated"].append([clock == length - 1 for length in lengths])
        rows["truncated"].append([each and clock == limit - 1 for each in plays])
        clock += 1
        if clock in (limit, max(lengths)):
            episode, clock = episode + 1, 0
    columns = {name: np.array(values).T for name, values in rows.items()}
    lanes = np.broadcast_to(np.arange(first, first + len(lengths))[:, None], columns["t"].shape)
    columns["observation"] = np.stack([lanes, columns["episode"], columns["t"]], axis=-1)
    return columns


def check(batches, copies, limit):
    """Compares batches of copies, with the lengths of their agents, with the model."""
    whole = {name: np.concatenate([batch[name] for batch in batches], axis=1) for name in batches[0]}
    steps, agents = whole["t"].shape[1], len(copies[0])
    models = [modelled(lengths, limit, steps, i * agents) for i, lengths in enumerate(copies)]
    model = {name: np.concatenate([each[name] for each in models]) for name in models[0]}
    mask = model["mask"]
    for name in ("mask", "t", "terminated", "truncated"):
        np.testing.assert_array_equal(whole[name], model[name], err_msg=name)
    seen = model["observation"]
    np.testing.assert_array_equal(whole["observation"][mask], seen[mask])
    np.testing.assert_array_equal(whole["next_observation"][mask], seen[mask] + [0, 0, 1])
    np.testing.assert_array_equal(whole["action"][mask], action_of(seen)[mask])
    np.testing.assert_array_equal(whole["state_in_0"][mask], model["t"][mask])
    before = action_of(seen - [0, 0, 1])
    np.testing.assert_array_equal(whole["prev_action"][mask], np.where(model["t"] > 0, before, 0)[mask])
    for name in ("observation", "next_observation", "action", "reward"):
        assert not whole[name][~mask].any()
    # An id for each trajectory of each lane, and no other.
    trajectories = {
        (*row[:2], each) for row, each in zip(seen[mask].tolist(), whole["episode_id"][mask], strict=True)
    }
    assert (
        len(trajectories) == len({row[:2] for row in trajectories}) == len({row[2] for row in trajectories})
    )
    assert (whole["episode_id"][~mask] == -1).all()
    assert sum(batch.frames for batch in batches) == mask.sum()


def copies_of(copies):
    return [partial(CounterAgents, lengths, first_copy=i * len(lengths)) for i, lengths in enumerate(copies)]


OPTIONS = {"views": {"prev_action": hr.View("action", shift=-1)}}


@settings(max_examples=40, deadline=None)
@given(lengths_of_agents, st.integers(1, 7), st.integers(1, 7), st.data())
def test_a_copy_is_cut_and_reset_with_all_its_agents(lengths, limit, steps, data):
    """CR5: against a model, with two copies whose agents end at other steps, over batch borders."""
    other = data.draw(st.lists(st.integers(1, 6), min_size=len(lengths), max_size=len(lengths)))
    copies = [lengths, other]
    left = copies_of(copies)

    def create():
        return left.pop(0)()

    with hr.Collector(
        create,
        Counting(),
        num_envs=2,
        frames_per_batch=2 * len(lengths) * steps,
        max_frames_per_traj=limit,
        **OPTIONS,
    ) as collector:
        check([collector.next() for _ in range(4)], copies, limit)


@pytest.mark.parametrize("limit", [1, 3, 4])
def test_copies_in_workers(limit):
    """CR5: each copy in a process of its own."""
    copies = [[2, 5], [4, 1]]
    with hr.MultiCollector(
        copies_of(copies), Counting(), sync=True, frames_per_batch=20, max_frames_per_traj=limit, **OPTIONS
    ) as collector:
        check([collector.next(timeout=60) for _ in range(3)], copies, limit)


def test_a_state_has_the_steps_of_the_copy():
    """CR5, CQ3: a collector that goes on cuts where the first one would have."""
    copies = [[1, 6]]

    def collector():
        return hr.Collector(
            copies_of(copies)[0], Counting(), frames_per_batch=6, max_frames_per_traj=4, **OPTIONS
        )

    with collector() as first, collector() as second:
        first.next()
        second.load_state_dict(first.state_dict())
        for _ in range(3):
            one, two = first.next(), second.next()
            for name in ("mask", "t", "terminated", "truncated", "observation"):
                np.testing.assert_array_equal(one[name], two[name])


def test_an_agent_that_comes_late():
    """CR5, M3: the limit counts the steps of the environment, so its trajectory is shorter."""
    env = ScriptedEnv("a", *3 * [Turn("ab")], possible="ab")
    with hr.Collector(env, frames_per_batch=8, max_frames_per_traj=2) as collector:
        batch = collector.next()
    assert batch["mask"].tolist() == [[True] * 4, [False, True] * 2]
    assert batch["truncated"].tolist() == [[False, True] * 2] * 2
    assert batch["t"].tolist() == [[0, 1] * 2, [0] * 4]
    assert batch["observation"][0, :, 2].tolist() == [0, 1] * 2
    assert batch["observation"][1, :, 2].tolist() == [0, 1] * 2


@pytest.mark.parametrize("ended", ["", "a"])
def test_an_agent_that_comes_with_the_cut_takes_no_step(ended):
    """CR5: also where the others end by themselves in that step."""
    turn = Turn("b" if ended else "ab", rewards={"a": 1.0}, terminated=ended)
    env = ScriptedEnv("a", turn, possible="ab", endless=True)
    with hr.Collector(env, frames_per_batch=6, max_frames_per_traj=1) as collector:
        batch = collector.next()
    assert batch["mask"].tolist() == [[True] * 3, [False] * 3]
    assert batch["truncated"].tolist() == [[True] * 3, [False] * 3]
    assert batch["terminated"].tolist() == [[bool(ended)] * 3, [False] * 3]
    assert len(set(batch["episode_id"][0].tolist())) == 3


def test_a_reset_of_one_environment():
    """CE2: all its lanes or none; the other environment goes on."""
    stepper = ParallelStepper([CounterAgents([3, 3]), CounterAgents([3, 3], first_copy=2)])
    row = new_columns(stepper.observation_signature, 4)
    stepper.reset(row)
    stepper.step({"action": np.zeros(4, np.int64)}, row)
    stepper.reset(row, envs=np.array([2, 3]))
    assert row["observation"].tolist() == [[0, 0, 1], [1, 0, 1], [2, 1, 0], [3, 1, 0]]
    with pytest.raises(ValueError, match="all lanes of an environment or none"):
        stepper.reset(row, envs=np.array([1, 2]))
