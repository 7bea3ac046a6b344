"""The acting policy: epsilon-greedy, with its own stacks of frames."""

from __future__ import annotations

from typing import Any

from headrace.cli.dqn.network import NetworkShape, build
from headrace.cli.dqn.pytorch import nn, torch


class EpsilonGreedy(nn.Module):
    """Acts by the greatest value, and at random with probability epsilon.

    Epsilon is part of the weights: the learner sets it and publishes it with them, so a worker that is started again
    has the present one.

    Args:
        shape: the sizes of the network.
        first_action: the action of the network's first value.
        epsilon: the probability of a random action, at the start.

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
        """Returns actions int64[n] for observations [n, ...], or for `{"frame": [n, H, W], "first": [n]}`."""
        if self._stacks is not None:
            inputs = self._stacks.push(observation["frame"], observation["first"])
        else:
            inputs = observation.float()
        actions = self.network(inputs).argmax(dim=1)
        random = torch.randint(self.shape.num_actions, actions.shape)
        explores = torch.rand(actions.shape) < self.epsilon
        return torch.where(explores, random, actions) + self.first_action


class FrameStacks:
    """The newest frames of n environments, oldest first; the first frame of an episode stands for those before it.

    The view `hr.views.transition(frame_stack=S)` gives the same stacks for training.

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
        """Adds frames [n, H, W], and returns stacks [n, S, H, W]; `first` [n] is true where an episode begins."""
        repeated = frame.unsqueeze(1).expand(-1, self._size, -1, -1)
        before = repeated if self._frames is None else self._frames
        following = torch.cat((before[:, 1:], frame.unsqueeze(1)), dim=1)
        self._frames = torch.where(first.bool()[:, None, None, None], repeated, following)
        return self._frames
