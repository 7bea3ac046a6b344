"""The short form of examples/td3_pendulum.py."""

import numpy as np
import pytest

pytest.importorskip("torch")


def test_the_critics_learn_from_one_batch_for_each_new_frame(example):
    result, losses = example("td3_pendulum").main(steps=1300)
    assert len(losses) == 300  # Each frame beyond the 1000 random ones is worth one batch.
    assert np.isfinite(losses).all()
    # The first targets are returns of three steps, far from the 0 of a new critic.
    assert np.mean(losses[-50:]) < 0.2 * np.mean(losses[:5])
    assert -2000 < result < 0


def test_an_evaluation_is_whole_episodes(example):
    td3 = example("td3_pendulum")
    actor = td3.Actor(noise=0.5)
    assert td3.evaluate(actor, seed=3) == td3.evaluate(actor, seed=3)  # Without noise, from equal starts.
    assert actor.noise == 0.5
