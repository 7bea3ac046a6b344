"""The short form of examples/impala_queue.py."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")


def test_each_rollout_of_two_actors_is_learnt_from_once(example, capsys):
    losses, returned = example("impala_queue").main(updates=60, actors=2)
    assert len(losses) == 60
    assert np.isfinite(losses).all()
    assert returned > 26  # Random actions give 22.
    told = capsys.readouterr().out
    assert "960 learnt from" in told
    # The queue holds 32 rollouts, so what was learnt from is never much older than its two batches.
    assert float(told.split(" updates old")[0].split()[-1]) < 10


def test_v_trace_is_that_of_the_paper(example):
    module = example("impala_queue")
    generator = torch.Generator().manual_seed(0)
    batch, steps, gamma = 2, 6, module.GAMMA

    def numbers():
        return torch.randn(batch, steps, generator=generator)

    # The first episode is terminated after 3 transitions, the second goes on after the window.
    real = torch.tensor([[True] * 3 + [False] * 3, [True] * 6])
    terminated = torch.tensor([[False, False, True, False, False, False], [False] * 6])
    data = {
        "reward": numbers(),
        "terminated": terminated,
        "log_prob": numbers(),
        "next_observation_mask": real,
    }
    log_prob, value = numbers(), numbers()
    following = torch.cat((value[:, 1:], torch.ones(batch, 1)), dim=1)
    target, advantage = module.v_trace(data, log_prob, value, following)
    for b, length in enumerate([3, 6]):
        ratio = (log_prob[b] - data["log_prob"][b]).exp().clamp(max=1.0)
        discount = gamma * (1.0 - terminated[b].float())
        error = ratio * (data["reward"][b] + discount * following[b] - value[b])
        expected = [
            value[b, s] + sum(torch.prod((discount * ratio)[s:t]) * error[t] for t in range(s, length))
            for s in range(length)
        ]
        torch.testing.assert_close(target[b, :length], torch.stack(expected))
        after = torch.stack([*expected[1:], following[b, length - 1]])
        gain = ratio[:length] * (data["reward"][b, :length] + discount[:length] * after - value[b, :length])
        torch.testing.assert_close(advantage[b, :length], gain)
