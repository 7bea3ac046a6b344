"""One update of the network from one batch."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

try:
    import torch
    from torch.nn import functional
except ImportError as error:
    raise ImportError('headrace train needs torch: pip install "headrace[torch]"') from error

from headrace.cli.dqn import targets
from headrace.cli.dqn.network import NetworkShape, build
from headrace.cli.dqn.settings import DqnSettings
from headrace.replay.batch import SampledBatch

Weights = dict[str, torch.Tensor]


class Update(NamedTuple):
    """The outcome of an update.

    Attributes:
        priorities: float64[B], for the items of the batch.
        loss: weighted Huber loss, mean of the batch.
    """

    priorities: NDArray[np.float64]
    loss: float


class Learner:
    """Owns the online and the target network and the optimizer.

    Args:
        shape: of the networks.
        settings: hyperparameters.
        device: where the networks are.
    """

    def __init__(self, shape: NetworkShape, settings: DqnSettings, device: torch.device) -> None:
        self._settings, self._device = settings, device
        self.online = build(shape).to(device)
        self._target = build(shape).to(device)
        self._target.load_state_dict(self.online.state_dict())
        self._optimizer = torch.optim.Adam(self.online.parameters(), lr=settings.learning_rate)
        self.updates = 0

    def update(self, batch: SampledBatch, *, beta: float, learning_rate: float) -> Update:
        """Learn from one batch of `hr.views.transition` views.

        Args:
            batch: its items are one step long.
            beta: exponent of the importance weights.
            learning_rate: of this update.
        """
        data = {name: self._tensor(values) for name, values in batch.data.items()}
        reward, discount = data["reward"].float(), data["discount"].float()
        weights = targets.importance_weights(
            self._tensor(batch.info.probabilities), self._tensor(batch.info.table_size), beta
        )
        # What a worker left behind when it died has no next observation, so n = 0: nothing is to be learnt from it.
        weights = weights * (data["n"] > 0)
        with torch.no_grad():
            following = self._seen(data["next_observation"])
            wanted = targets.double_q_targets(
                reward, discount, self.online(following), self._target(following)
            )
        values = self.online(self._seen(data["observation"]))
        chosen = values.gather(1, data["action"].long().unsqueeze(1)).squeeze(1)
        loss = (weights * functional.smooth_l1_loss(chosen, wanted, reduction="none")).mean()
        self._step(loss, learning_rate)
        errors = (wanted - chosen).detach()
        found = targets.priorities(errors, self._settings.largest_priority)
        return Update(found.cpu().numpy().astype(np.float64), float(loss.detach()))

    def weights(self) -> Weights:
        """The weights of the online network, on the CPU."""
        return {name: value.detach().cpu() for name, value in self.online.state_dict().items()}

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

    def _seen(self, observation: torch.Tensor) -> torch.Tensor:
        # Frames stay bytes until the network scales them.
        return observation if observation.dtype == torch.uint8 else observation.float()
