"""The acting policy: greedy, random, and with stacks that are those of training."""

import numpy as np
import pytest
import torch

import headrace as hr
from headrace.cli.dqn.network import NetworkShape
from headrace.cli.dqn.policy import EpsilonGreedy, FrameStacks


def linear_policy(epsilon, first_action=0):
    """Values are the first three observations themselves."""
    policy = EpsilonGreedy(NetworkShape((3,), num_actions=3, hidden_units=4), first_action, epsilon)
    policy.network = torch.nn.Identity()
    return policy


def test_greedy_takes_the_greatest_value():
    observation = torch.tensor([[0.0, 1.0, 2.0], [5.0, 1.0, 2.0], [0.0, 9.0, 2.0]], dtype=torch.float64)
    assert linear_policy(0.0)(observation).tolist() == [2, 0, 1]
    assert linear_policy(0.0, first_action=-1)(observation).tolist() == [1, -1, 0]


def test_epsilon_is_the_share_of_random_actions():
    torch.manual_seed(0)
    observation = torch.tensor([[1.0, 0.0, 0.0]]).expand(30_000, 3)
    # A random action is the greedy one in a third of the cases.
    for epsilon in (0.0, 0.3, 1.0):
        actions = linear_policy(epsilon)(observation)
        assert (actions != 0).float().mean() == pytest.approx(epsilon * 2 / 3, abs=0.015)
        assert set(actions.tolist()) <= {0, 1, 2}


def test_epsilon_travels_with_the_weights():
    shape = NetworkShape((3,), num_actions=2, hidden_units=4)
    source, other = EpsilonGreedy(shape, 0, 0.25), EpsilonGreedy(shape, 0, 1.0)
    other.load_state_dict(source.state_dict())
    assert float(other.epsilon) == 0.25


def test_stacks_when_acting_are_those_of_training():
    lanes, steps, size = 3, 40, 4
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 256, (steps + 1, lanes, 2, 2), np.uint8)
    ends = rng.random((steps, lanes)) < 0.15
    table = hr.Table(
        "t", sampler=hr.selectors.Fifo(), remover=hr.selectors.Fifo(), max_size=1000, max_times_sampled=1
    )
    step = {"observation": np.zeros((2, 2), np.uint8), "reward": 0.0, "terminated": False, "truncated": False}
    step["action"] = np.int64(0)
    stacks, acted = FrameStacks(size), []
    with hr.Replay(hr.Signature.like(step), [table]) as replay:
        with replay.writer(lanes=lanes, items=[hr.ItemRule("t", 1)]) as writer:
            first = np.ones(lanes, np.int8)
            for t in range(steps):
                acted.append(stacks.push(torch.from_numpy(frames[t]), torch.from_numpy(first)).numpy())
                none = np.zeros(lanes)
                writer.append(
                    {
                        "observation": frames[t],
                        "action": none.astype(np.int64),
                        "reward": none,
                        "terminated": ends[t],
                        "truncated": none.astype(bool),
                    }
                )
                for lane in np.flatnonzero(ends[t]):
                    writer.end_episode({"observation": frames[t + 1, lane]}, lane=int(lane))
                first = ends[t].astype(np.int8)
        views = {"observation": hr.views.transition(frame_stack=size)["observation"]}
        trained = replay.sample("t", steps * lanes, views=views)["observation"]
    np.testing.assert_array_equal(trained, np.concatenate(acted))
