"""The short form of examples/ppo_cartpole.py."""

import numpy as np
import pytest

import headrace as hr

torch = pytest.importorskip("torch")


def test_the_pole_stays_up_longer(example):
    assert example("ppo_cartpole").main(batches=15) > 80  # Random actions: 22 steps.


def test_advantages_go_on_with_the_value_of_the_true_next_observation(example):
    """A row that is truncated, or the last of a batch, is worth its reward and the value of what follows."""
    ppo = example("ppo_cartpole")
    net = ppo.ActorCritic()
    with hr.Collector(ppo.ENV, net, frames_per_batch=4, max_frames_per_traj=2, seed=0) as collector:
        batch = next(iter(collector))
    assert batch["truncated"].tolist() == [[False, True, False, True]]
    found = ppo.with_advantages(net, batch)
    with torch.no_grad():
        last = net.value(torch.from_numpy(batch["next_observation"][0, -1]))
    assert np.isclose(found["return"][0, -1], 1 + 0.99 * last.item(), atol=1e-5)
