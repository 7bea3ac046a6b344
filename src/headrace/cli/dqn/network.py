"""Networks from observations to one value an action."""

from __future__ import annotations

import math
from dataclasses import dataclass

try:
    import torch
    from torch import nn
except ImportError as error:
    raise ImportError('headrace train needs torch: pip install "headrace[torch]"') from error


@dataclass(frozen=True)
class NetworkShape:
    """The sizes that a network is built from.

    Attributes:
        observation: of one row: `(D,)` for vectors; `(S, H, W)` for images, S being the stacked frames.
        num_actions: how many values come out.
        hidden_units: width of the hidden layers.
    """

    observation: tuple[int, ...]
    num_actions: int
    hidden_units: int


def build(shape: NetworkShape) -> nn.Module:
    """A multilayer perceptron for vectors, a small convolutional network for images.

    The second is that of V. Mnih et al., "Human-level control through deep reinforcement learning" (2015).

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
    """Pixels 0 to 255 to numbers 0 to 1: frames travel as bytes and become floats only here."""

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return pixels.float() / 255.0
