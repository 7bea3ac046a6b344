"""Targets, importance weights and priorities, against numbers worked out by hand."""

import numpy as np
import pytest
import torch

from headrace.cli.dqn import targets


def test_the_online_network_picks_and_the_target_network_values():
    found = targets.double_q_targets(
        reward=torch.tensor([1.0, 1.75, 5.0]),
        discount=torch.tensor([0.5, 0.125, 0.0]),
        online_next=torch.tensor([[1.0, 2.0], [3.0, 0.0], [9.0, 8.0]]),
        target_next=torch.tensor([[10.0, 4.0], [8.0, 100.0], [7.0, 7.0]]),
    )
    # 1 + .5 * 4 (not 10: the target network's own best is not asked for); 1.75 + .125 * 8; ended: the reward alone.
    assert found.tolist() == [3.0, 2.75, 5.0]


def test_importance_weights():
    probabilities = torch.tensor([0.5, 0.125, 0.25], dtype=torch.float64)
    size = torch.full((3,), 4)
    # (4 p) ** -b = (2, .5, 1) ** -b, by the greatest.
    assert targets.importance_weights(probabilities, size, 1.0).tolist() == [0.25, 1.0, 0.5]
    assert targets.importance_weights(probabilities, size, 0.0).tolist() == [1.0, 1.0, 1.0]
    half = targets.importance_weights(probabilities, size, 0.5)
    np.testing.assert_allclose(half.numpy(), [0.5, 1.0, np.sqrt(0.5)], rtol=1e-6)
    assert half.dtype == torch.float32


def test_priorities_are_never_zero_and_never_above_those_of_new_items():
    found = targets.priorities(torch.tensor([-2.0, 0.0, 0.5, 70.0]), largest=10.0)
    assert found.tolist() == pytest.approx([2.001, 0.001, 0.501, 10.0])
