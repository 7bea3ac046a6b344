"""One update, checked against the arithmetic done by hand."""

import copy

import numpy as np
import pytest
import torch

from headrace.cli.dqn.learner import Learner
from headrace.cli.dqn.network import NetworkShape
from headrace.cli.dqn.settings import DqnSettings
from headrace.replay.sampling.replay_sample import ReplaySample, SampleInfo

SHAPE = NetworkShape((2,), num_actions=2, hidden_units=8)


def batch(n=(3, 1, 3)):
    size = len(n)
    data = {
        "observation": np.arange(2 * size, dtype=np.float64).reshape(size, 2),
        "action": np.array([0, 1, 1])[:size],
        "reward": np.array([1.0, 2.0, 30.0], np.float32)[:size],
        "next_observation": np.ones((size, 2)),
        "terminated": np.zeros(size, bool),
        "truncated": np.zeros(size, bool),
        "discount": np.array([0.9, 0.0, 0.7], np.float32)[:size],
        "n": np.array(n),
    }
    info = SampleInfo(
        np.arange(size, dtype=np.uint64),
        np.array([0.5, 0.25, 0.25])[:size],
        np.full(size, 4),
        np.ones(size),
        np.ones(size, np.int64),
    )
    return ReplaySample(data, info)


def learner(**settings):
    torch.manual_seed(3)
    return Learner(SHAPE, DqnSettings(**settings), torch.device("cpu"))


def test_priorities_and_loss_by_hand():
    found = learner()
    network = copy.deepcopy(found.online)
    update = found.update(batch(), beta=1.0, learning_rate=1e-3)
    with torch.no_grad():
        following = (
            network(torch.ones(1, 2)).max().item()
        )  # The target network equals the online one at the start.
        values = network(torch.arange(6.0).reshape(3, 2))
    wanted = np.array([1.0 + 0.9 * following, 2.0, 30.0 + 0.7 * following])
    errors = wanted - values[[0, 1, 2], [0, 1, 1]].numpy()
    np.testing.assert_allclose(update.priorities, np.minimum(np.abs(errors) + 1e-3, 10.0), rtol=1e-5)
    weights = np.array([0.5, 1.0, 1.0])  # (4 p) ** -1 = (.5, 1, 1)
    huber = np.where(np.abs(errors) < 1, 0.5 * errors**2, np.abs(errors) - 0.5)
    assert update.loss == pytest.approx(float((weights * huber).mean()), rel=1e-5)


def test_an_update_lessens_the_error():
    found, ends = learner(), batch()
    ends.data["discount"][:] = 0.0  # Targets that stand still: the rewards themselves.
    first = found.update(ends, beta=0.4, learning_rate=1e-2).loss
    for _ in range(300):
        last = found.update(ends, beta=0.4, learning_rate=1e-2).loss
    assert last < first / 10


def test_rows_without_a_next_observation_teach_nothing():
    found = learner()
    before = copy.deepcopy(found.online.state_dict())
    assert found.update(batch(n=(0, 0, 0)), beta=0.4, learning_rate=1e-2).loss == 0.0
    for name, value in found.online.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)


def test_the_target_network_is_copied_every_so_often():
    found = learner(target_every=3)
    start = copy.deepcopy(found._target.state_dict())
    for _ in range(2):
        found.update(batch(), beta=0.4, learning_rate=1e-2)
        torch.testing.assert_close(dict(found._target.state_dict()), dict(start))
    found.update(batch(), beta=0.4, learning_rate=1e-2)
    torch.testing.assert_close(dict(found._target.state_dict()), dict(found.online.state_dict()))
    assert found.updates == 3
