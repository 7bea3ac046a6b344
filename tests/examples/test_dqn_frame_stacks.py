"""The short form of examples/dqn_frame_stacks.py."""

import numpy as np
import pytest

import headrace as hr

pytest.importorskip("torch")


@pytest.mark.parametrize("frames", [4, 1])
def test_it_learns_from_stacks(example, frames):
    assert 0 <= example("dqn_frame_stacks").main(steps=1500, frames=frames) <= 1


def test_stacks_of_the_replay_are_those_of_acting(example):
    """The policy keeps what it saw; the replay makes the same of single frames."""
    dqn = example("dqn_frame_stacks")
    policy, seen = dqn.GreedyPolicy(dqn.Network(3), 3, seed=0), []
    act = policy.compute_actions
    policy.compute_actions = lambda inputs: (seen.append(inputs["stack"].copy()), act(inputs))[1]
    queue = hr.Table.queue("transitions", 100)
    with hr.Replay(hr.collectors.signature(dqn.Catch), [queue]) as replay:
        with hr.RolloutWorker(dqn.Catch, policy, rollout_fragment_length=15, seed=0) as worker:
            batch = worker.sample()
        assert batch["observation"].shape == (15, 8, 8)
        with hr.rollouts.BatchWriter(replay, [hr.ItemRule("transitions", length=1)]) as writer:
            writer.write(batch)
        stored = replay.sample("transitions", 15, views=hr.views.transition(frame_stack=3))
    np.testing.assert_array_equal(stored["observation"], np.concatenate(seen))
    assert stored["terminated"].sum() == 2  # A ball falls seven steps.
