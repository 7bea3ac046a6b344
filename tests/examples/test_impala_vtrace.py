"""The short form of examples/impala_vtrace.py."""

import pytest

torch = pytest.importorskip("torch")


def test_it_learns_from_rollouts_of_two_workers(example):
    module = example("impala_vtrace")
    told = module.main(batches=150)
    assert told.batches == 150
    assert told.lag_exceeded == 0
    assert max(told.lag_histogram) <= module.MAX_STALENESS
    assert min(worker.rollouts for worker in told.workers) > 0
    assert told.episode_return_mean > 40  # Random actions: 22.


def test_the_loss_reads_no_masked_row(example):
    module = example("impala_vtrace")
    net, generator = module.ActorCritic(), torch.Generator().manual_seed(0)
    shape = (2, 5)
    rows = {
        "observation": torch.randn(*shape, 4, generator=generator),
        "next_observation": torch.randn(*shape, 4, generator=generator),
        "action": torch.randint(0, 2, shape, generator=generator),
        "reward": torch.ones(shape),
        "log_prob": torch.full(shape, -0.7),
        "terminated": torch.zeros(shape, dtype=torch.bool),
        "truncated": torch.zeros(shape, dtype=torch.bool),
        "mask": torch.ones(shape, dtype=torch.bool),
    }
    # An environment with autoreset NEXT_STEP: its episode ends at step 2, and step 3 is its reset.
    rows["terminated"][1, 2], rows["mask"][1, 3] = True, False
    loss = module.loss_of(net, rows)
    for name in ("observation", "next_observation", "reward", "log_prob"):
        rows[name][1, 3] = 1e3
    assert torch.equal(module.loss_of(net, rows), loss)
    assert torch.isfinite(loss)
