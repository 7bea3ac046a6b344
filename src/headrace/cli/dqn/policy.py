"""The policy that acts: epsilon-greedy on a network, with its own stacks of frames."""

from __future__ import annotations

from typing import Any

try:
    import torch
    from torch import nn
except ImportError as error:
    raise ImportError('headrace train needs torch: pip install "headrace[torch]"') from error

from headrace.cli.dqn.network import NetworkShape, build


class EpsilonGreedy(nn.Module):
    """Acts by the greatest value, and at random with probability epsilon.

    Epsilon is part of the weights. So the learner sets it, every publication carries it, and a worker that is started
    again acts with the one that holds now.

    Args:
        shape: of the network.
        first_action: the action that the network's first value stands for.
        epsilon: at the start.

    >>> policy = EpsilonGreedy(NetworkShape((4,), num_actions=2, hidden_units=8), first_action=0, epsilon=0.0)
    >>> policy(torch.zeros(3, 4)).shape
    torch.Size([3])
    """

    def __init__(self, shape: NetworkShape, first_action: int, epsilon: float) -> None:
        super().__init__()
        self.shape, self.first_action = shape, first_action
        self.network = build(shape)
        self.epsilon: torch.Tensor
        self.register_buffer("epsilon", torch.tensor(epsilon))
        self._stacks = FrameStacks(shape.observation[0]) if len(shape.observation) > 1 else None

    def forward(self, observation: Any) -> torch.Tensor:
        """Actions int64[n] for observations [n, ...], or for `{"frame": [n, H, W], "first": [n]}`."""
        if self._stacks is not None:
            seen = self._stacks.push(observation["frame"], observation["first"])
        else:
            seen = observation.float()
        actions = self.network(seen).argmax(dim=1)
        random = torch.randint(self.shape.num_actions, actions.shape)
        explores = torch.rand(actions.shape) < self.epsilon
        return torch.where(explores, random, actions) + self.first_action


class FrameStacks:
    """The newest frames of n environments, oldest first; an episode's first frame stands for those before it.

    That is what the view `hr.views.transition(frame_stack=S)` presents when training.

    >>> stacks = FrameStacks(2)
    >>> first = torch.ones(1, dtype=torch.int8)
    >>> stacks.push(torch.full((1, 1, 1), 7), first).flatten().tolist()
    [7, 7]
    >>> stacks.push(torch.full((1, 1, 1), 8), first * 0).flatten().tolist()
    [7, 8]
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._frames: torch.Tensor | None = None

    def push(self, frame: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
        """Take the frames [n, H, W] that follow; `first` [n] is true where an episode begins. Returns [n, S, H, W]."""
        again = frame.unsqueeze(1).expand(-1, self._size, -1, -1)
        before = again if self._frames is None else self._frames
        following = torch.cat((before[:, 1:], frame.unsqueeze(1)), dim=1)
        self._frames = torch.where(first.bool()[:, None, None, None], again, following)
        return self._frames
