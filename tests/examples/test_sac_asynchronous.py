"""The short form of examples/sac_asynchronous.py."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")


def test_the_critics_learn_from_one_batch_for_each_new_frame(example):
    result, losses = example("sac_asynchronous").main(steps=1300)
    assert len(losses) == 300  # Each frame beyond the 1000 random ones is worth one batch.
    # The first targets are far from the 0 of a new critic.
    assert np.mean(losses[-50:]) < 0.2 * np.mean(losses[:5])
    assert -2000 < result < 0


def test_log_probabilities_are_those_of_the_squashed_actions(example):
    """The density of an action is the derivative of the share of samples below it."""
    module = example("sac_asynchronous")
    torch.manual_seed(0)
    actor = module.Sac().actor
    observation = torch.zeros(100_000, 3)
    with torch.no_grad():
        action, log_prob = actor.sample(observation)
    assert float(action.abs().max()) <= 2.0
    near = (action[:, 0] - 0.5).abs() < 0.05
    assert np.isclose(float(near.float().mean()) / 0.1, float(log_prob[near].exp().mean()), rtol=0.05)


def test_an_evaluation_is_whole_episodes(example):
    module = example("sac_asynchronous")
    actor = module.Sac().actor
    assert module.evaluate(actor, seed=3) == module.evaluate(
        actor, seed=3
    )  # Without noise, from equal starts.
