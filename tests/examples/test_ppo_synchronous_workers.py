"""The short form of examples/ppo_synchronous_workers.py."""

import numpy as np
import pytest

import headrace as hr

torch = pytest.importorskip("torch")


def test_it_learns_in_another_environment_too(example):
    module = example("ppo_synchronous_workers")
    module.ENV = "CartPole-v1"
    told = module.main(batches=8)
    assert told.frames == 8 * 2 * module.NUM_ENVS * module.STEPS
    assert told.episode_return_mean > 60  # Random actions: 22.
    assert set(told.lag_histogram) == {0}  # Each batch was collected with the newest weights.


def test_advantages_go_on_with_the_value_of_the_true_next_observation(example):
    """A row that is truncated, or the last of a batch, is worth its reward and the value of what follows."""
    ppo = example("ppo_synchronous_workers")
    net = ppo.ActorCritic()
    options = {"frames_per_batch": 8, "num_workers": 2, "max_frames_per_traj": 3, "seed": 0}
    with hr.MultiCollector(ppo.ENV, net, sync=True, **options) as collector:
        batch = collector.next(timeout=60)
    assert batch["truncated"].tolist() == [[False, False, True, False]] * 2
    found = ppo.with_advantages(net, batch)
    with torch.no_grad():
        following = net.value(torch.from_numpy(batch["next_observation"])).numpy()
    expected = batch["reward"] + ppo.GAMMA * following
    assert np.allclose(found["return"][:, 2:], expected[:, 2:], atol=1e-5)
