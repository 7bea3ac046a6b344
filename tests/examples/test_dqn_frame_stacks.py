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
    policy, seen = dqn.EpsilonGreedy(dqn.Network(3), 3, epsilon=0.5, seed=0), []
    act = policy.compute_actions
    policy.compute_actions = lambda inputs: (seen.append(inputs["stack"].copy()), act(inputs))[1]
    rows = 2 * dqn.FALL
    options = {"frames_per_batch": rows, "total_frames": rows, "seed": 0}
    with hr.Replay(hr.collectors.signature(dqn.Catch), [hr.Table.queue("transitions", 100)]) as replay:
        with hr.Collector(dqn.Catch, policy, replay_buffer=replay, **options) as collector:
            (batch,) = collector
        assert batch["observation"].shape == (1, rows, 8, 8)
        stored = replay.sample("transitions", rows, views=hr.views.transition(frame_stack=3))
    np.testing.assert_array_equal(stored["observation"], np.concatenate(seen)[-rows:])
    assert stored["terminated"].sum() == 2
