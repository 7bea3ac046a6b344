"""One update of the network from one batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.cli.dqn import targets
from headrace.cli.dqn.network import NetworkShape, build
from headrace.cli.dqn.pytorch import functional, torch
from headrace.cli.dqn.settings import DqnSettings
from headrace.replay.sampling.replay_sample import ReplaySample

Weights = dict[str, torch.Tensor]


class Update(NamedTuple):
    """The result of an update.

    Attributes:
        priorities: float64[B], the new priorities of the items of the batch.
        loss: weighted Huber loss, the mean of the batch.
    """

    priorities: NDArray[np.float64]
    loss: float


class Learner:
    """The online network, the target network and the optimizer.

    Args:
        shape: the sizes of both networks.
        settings: hyperparameters.
        device: the device of the networks.
    """

    def __init__(self, shape: NetworkShape, settings: DqnSettings, device: torch.device) -> None:
        self._settings, self._device = settings, device
        self.online = build(shape).to(device)
        self._target = build(shape).to(device)
        self._target.load_state_dict(self.online.state_dict())
        self._optimizer = torch.optim.Adam(self.online.parameters(), lr=settings.learning_rate)
        self.updates = 0

    def update(self, batch: ReplaySample, *, beta: float, learning_rate: float) -> Update:
        """Takes one gradient step on a batch of `hr.views.transition` views.

        Args:
            batch: items of one step.
            beta: exponent of the importance weights.
            learning_rate: the step size of this update.
        """
        data = {name: self._tensor(values) for name, values in batch.data.items()}
        reward, discount = data["reward"].float(), data["discount"].float()
        weights = targets.importance_weights(
            self._tensor(batch.info.probabilities), self._tensor(batch.info.table_size), beta
        )
        # The last transition of a worker that died has no next observation and n = 0: its weight is zero.
        weights = weights * (data["n"] > 0)
        with torch.no_grad():
            next_input = self._as_input(data["next_observation"])
            expected = targets.double_q_targets(
                reward, discount, self.online(next_input), self._target(next_input)
            )
        values = self.online(self._as_input(data["observation"]))
        chosen = values.gather(1, data["action"].long().unsqueeze(1)).squeeze(1)
        loss = (weights * functional.smooth_l1_loss(chosen, expected, reduction="none")).mean()
        self._step(loss, learning_rate)
        errors = (expected - chosen).detach()
        found = targets.priorities(errors, self._settings.largest_priority)
        return Update(found.cpu().numpy().astype(np.float64), float(loss.detach()))

    def weights(self) -> Weights:
        """Returns the weights of the online network, on the CPU."""
        return {name: value.detach().cpu() for name, value in self.online.state_dict().items()}

    def state_dict(self) -> dict[str, Any]:
        """Returns networks, optimizer and the number of updates, as plain containers and tensors."""
        return {
            "online": self.online.state_dict(),
            "target": self._target.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "updates": self.updates,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from the state of a learner with the same arguments: its next update is that of the other."""
        self.online.load_state_dict(state["online"])
        self._target.load_state_dict(state["target"])
        self._optimizer.load_state_dict(state["optimizer"])
        self.updates = state["updates"]

    def _step(self, loss: torch.Tensor, learning_rate: float) -> None:
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.online.parameters(), self._settings.max_grad_norm)
        self._optimizer.step()
        self.updates += 1
        if self.updates % self._settings.target_every == 0:
            self._target.load_state_dict(self.online.state_dict())

    def _tensor(self, values: NDArray[Any]) -> torch.Tensor:
        return torch.from_numpy(values).to(self._device)

    def _as_input(self, observation: torch.Tensor) -> torch.Tensor:
        # Frames stay bytes until the network scales them.
        return observation if observation.dtype == torch.uint8 else observation.float()
