"""Prioritized buffers for SB3."""

import pickle

import numpy as np
import pytest
import torch
from sb3_histories import ACTIONS, BOX, DICT, add_copy, history

from headrace.integrations.sb3 import PrioritizedSamples, ReplayBuffer


def filled(calls=40, space=BOX, **options):
    buffer = ReplayBuffer(100, space, ACTIONS["discrete"], "cpu", priority_exponent=1.0, **options)
    for call in history(space, ACTIONS["discrete"], 1, calls):
        add_copy(buffer, call)
    buffer.cut_episodes()
    return buffer


@pytest.mark.parametrize("space", [BOX, DICT], ids=["box", "dict"])
def test_without_updates_all_are_as_likely(space):
    samples = filled(space=space).sample(64)
    assert isinstance(samples, PrioritizedSamples)
    assert samples.weights.shape == (64, 1)
    assert samples.weights.dtype == torch.float32
    assert (samples.weights == 1).all()
    assert samples.discounts is None


def test_shares_and_weights_follow_priorities():
    buffer = filled(importance_exponent=1.0)
    keys = np.unique(buffer.sample(4000).keys)
    assert len(keys) == 40
    buffer.update_priorities(keys, torch.arange(40.0)[:, None])
    samples = buffer.sample(20_000)
    priority = np.searchsorted(keys, samples.keys)
    assert priority.min() > 0
    shares = np.bincount(priority, minlength=40) / 20_000
    np.testing.assert_allclose(shares, np.arange(40) / 780, atol=0.01)
    weights = samples.weights.numpy()[:, 0]
    np.testing.assert_allclose(weights, priority.min() / priority, rtol=1e-5)
    buffer.priorities.importance_exponent = 0.0
    assert (buffer.sample(100).weights == 1).all()


def test_new_transitions_have_the_largest_priority():
    buffer = filled(calls=10)
    buffer.update_priorities(buffer.sample(200).keys, np.full(200, 7.0))
    buffer.update_priorities(buffer.sample(200).keys, np.full(200, 0.5))
    for call in history(BOX, ACTIONS["discrete"], 1, 5, seed=9):
        add_copy(buffer, call)
    buffer.cut_episodes()
    info = buffer.replay.sample("replay", 2000).info
    by_key = dict(zip(info.keys.tolist(), info.priorities.tolist(), strict=True))
    assert [by_key[key] for key in sorted(by_key)] == [0.5] * 10 + [7.0] * 5


def test_the_largest_priority_survives_a_copy_and_ends_with_a_reset():
    buffer = filled(calls=10)
    buffer.update_priorities(buffer.sample(200).keys, np.full(200, 7.0))
    buffer.update_priorities(buffer.sample(200).keys, np.full(200, 0.5))
    copy = pickle.loads(pickle.dumps(buffer))
    buffer.reset()
    for each, largest in ((copy, 7.0), (buffer, 1.0)):
        for call in history(BOX, ACTIONS["discrete"], 1, 5, seed=9):
            add_copy(each, call)
        each.cut_episodes()
        assert each.replay.sample("replay", 2000).info.priorities.max() == largest


def test_wrong_updates_change_nothing():
    buffer = filled(calls=10)
    keys = buffer.sample(4).keys
    with pytest.raises(ValueError, match="expected finite priorities >= 0"):
        buffer.update_priorities(keys, [1.0, 2.0, -1.0, 9.0])
    assert set(buffer.replay.sample("replay", 200).info.priorities) == {1.0}
    uniform = ReplayBuffer(100, BOX, ACTIONS["discrete"], "cpu")
    with pytest.raises(ValueError, match="priority_exponent"):
        uniform.update_priorities(keys, np.ones(4))
