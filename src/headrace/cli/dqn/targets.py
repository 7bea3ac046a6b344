"""Targets, importance weights and priorities of an update, as pure functions on torch tensors."""

from __future__ import annotations

from headrace.cli.dqn.pytorch import torch


def double_q_targets(
    reward: torch.Tensor, discount: torch.Tensor, online_next: torch.Tensor, target_next: torch.Tensor
) -> torch.Tensor:
    """Returns targets for the chosen actions: the online network picks the next action, the target network values it.

    Args:
        reward: float32[B], the discounted sum of the n-step transition.
        discount: float32[B], gamma**m, 0 after termination (`hr.views.transition`).
        online_next, target_next: float32[B, A], values of the next observation by the two networks.

    Returns:
        float32[B].

    Source: H. van Hasselt, A. Guez, D. Silver, "Deep Reinforcement Learning with Double Q-learning" (2016).
    """
    best = online_next.argmax(dim=1, keepdim=True)
    return reward + discount * target_next.gather(1, best).squeeze(1)


def importance_weights(probabilities: torch.Tensor, table_size: torch.Tensor, beta: float) -> torch.Tensor:
    """Returns (N P)**-beta, divided by its maximum in the batch.

    Args:
        probabilities: float64[B], P, with which the items were drawn.
        table_size: int64[B], N, the items in the table.
        beta: 0 corrects nothing of the bias of prioritized sampling, 1 corrects all of it.

    Returns:
        float32[B] in (0, 1].

    Source: T. Schaul et al., "Prioritized Experience Replay" (2016), section 3.4.
    """
    # Rules: replay P4
    weights = (table_size * probabilities) ** -beta
    return (weights / weights.max()).float()


def priorities(td_errors: torch.Tensor, largest: float) -> torch.Tensor:
    """Returns absolute errors, above 0 so that every item can be drawn again, and at most the priority of new items.

    Args:
        td_errors: float32[B].
        largest: the priority of new items.

    Returns:
        float32[B].
    """
    return (td_errors.abs() + 1e-3).clamp(max=largest)
