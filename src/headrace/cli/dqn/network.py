"""Networks from observations to one value per action."""

from __future__ import annotations

import math
from dataclasses import dataclass

from headrace.cli.dqn.pytorch import nn, torch


@dataclass(frozen=True)
class NetworkShape:
    """The sizes of a network.

    Attributes:
        observation: shape of one observation: `(D,)` for vectors; `(S, H, W)` for S stacked frames.
        num_actions: number of values.
        hidden_units: width of the hidden layers.
    """

    observation: tuple[int, ...]
    num_actions: int
    hidden_units: int


def build(shape: NetworkShape) -> nn.Module:
    """Returns a multilayer perceptron for vectors, a small convolutional network for images.

    The latter is that of V. Mnih et al., "Human-level control through deep reinforcement learning" (2015).

    >>> network = build(NetworkShape((4,), num_actions=2, hidden_units=8))
    >>> network(torch.zeros(5, 4)).shape
    torch.Size([5, 2])
    """
    if len(shape.observation) == 1:
        return _perceptron(shape)
    return _convolutional(shape)


def _perceptron(shape: NetworkShape) -> nn.Module:
    width = shape.hidden_units
    return nn.Sequential(
        nn.Linear(shape.observation[0], width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, shape.num_actions),
    )


def _convolutional(shape: NetworkShape) -> nn.Module:
    features = nn.Sequential(
        _Scale(),
        nn.Conv2d(shape.observation[0], 32, 8, stride=4),
        nn.ReLU(),
        nn.Conv2d(32, 64, 4, stride=2),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3, stride=1),
        nn.ReLU(),
        nn.Flatten(),
    )
    with torch.no_grad():
        size = math.prod(features(torch.zeros(1, *shape.observation)).shape)
    return nn.Sequential(
        features,
        nn.Linear(size, shape.hidden_units),
        nn.ReLU(),
        nn.Linear(shape.hidden_units, shape.num_actions),
    )


class _Scale(nn.Module):
    """Scales pixels from 0..255 to 0..1. Frames stay bytes up to here."""

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return pixels.float() / 255.0
