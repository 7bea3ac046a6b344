"""A replay buffer with the interface of TorchRL's, for TensorDicts of transitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

try:
    import torch
    from tensordict import TensorDict, TensorDictBase
except ImportError as error:
    raise ImportError(
        'headrace.integrations.torchrl needs tensordict: pip install "headrace[torchrl]"'
    ) from error

from headrace.checks import check_count
from headrace.errors import SpecError
from headrace.integrations.priorities import Priorities
from headrace.integrations.tensordicts import tensordict_of, transitions_of
from headrace.replay.public import Replay
from headrace.spec import Signature
from headrace.trajectories.writers.transition_writer import TransitionWriter
from headrace.trees import map_leaves

_TABLE = "replay"


class ReplayBuffer:
    """Transitions of TensorDicts over a `Replay`, which stores each observation once.

    A TensorDict has the keys of TorchRL's environments and collectors: observations and "action" at the root; and below
    "next" the observations that followed, "reward", "terminated", and "done" or "truncated". An observation is each key
    that is at the root and below "next". Other keys are kept as they are.

    Leading axes are environments, the last batch axis is time. Consecutive rows belong to one trajectory if the next
    observation of a row is the observation of the row after, bit by bit. Trajectories do not go on from call to call,
    so extend the buffer with whole batches of a collector.

    Args:
        max_size: number of transitions.
        batch_size: of `sample` and of iteration; None: `sample` must be told.
        n_steps: largest number of transitions in a return; above 1 samples have "steps_to_next_obs", which TorchRL's
            value estimators read.
        gamma: the discount of one step, for n-step returns.
        priority_exponent: a transition is drawn in proportion to its priority to the power of this number, and samples
            have "priority_weight". New transitions have the largest priority so far. None draws each as likely.
        importance_exponent: of the importance weights; 1 corrects for the priorities fully.
        priority_key: the key of the priorities in TensorDicts of `update_tensordict_priority`.
        device: of the samples; None is the CPU.
        seed: of the random generator; None takes one from the system.

    Attributes:
        replay: the `Replay`, with statistics; None until the first call of `extend` or `add`, which tells the keys.
        priorities: its `importance_exponent` may be set at any time.

    Raises:
        ValueError: a number is out of range.

    >>> steps = torch.arange(5.0)[:, None]
    >>> no = torch.zeros(4, 1, dtype=torch.bool)
    >>> following = {"observation": steps[1:], "reward": torch.ones(4, 1), "terminated": no, "truncated": no}
    >>> rollout = TensorDict({"observation": steps[:4], "action": torch.zeros(4, 2), "next": following}, [4])
    >>> buffer = ReplayBuffer(1000, batch_size=32)
    >>> buffer.extend(rollout).shape, len(buffer)
    (torch.Size([4]), 4)
    >>> buffer.sample()["next", "observation"].shape, buffer.replay.statistics().store.rows
    (torch.Size([32, 1]), 5)
    """

    def __init__(
        self,
        max_size: int,
        *,
        batch_size: int | None = None,
        n_steps: int = 1,
        gamma: float = 0.99,
        priority_exponent: float | None = None,
        importance_exponent: float = 0.4,
        priority_key: str = "td_error",
        device: torch.device | str | None = None,
        seed: int | None = None,
    ) -> None:
        self.batch_size = None if batch_size is None else check_count("batch_size", batch_size, 1)
        self.n_steps = check_count("n_steps", n_steps, 1)
        self.gamma = gamma
        self.priorities = Priorities(priority_exponent, importance_exponent)
        self.priority_key = priority_key
        self.device = device
        self.replay: Replay | None = None
        self._table = self.priorities.table(max_size)
        self._seed = seed

    # ---- writing -----------------------------------------------------------------------------------------------------

    def extend(self, tensordicts: TensorDictBase) -> torch.Tensor:
        """Adds transitions.

        Args:
            tensordicts: with at least one batch axis; gets the key "index".

        Returns:
            int64 tensor of the batch's shape: an index for `update_priority`. No index comes twice.

        Raises:
            SpecError: a key is missing or does not fit the first TensorDict; nothing is stored.
        """
        if not tensordicts.batch_dims:
            raise SpecError("tensordicts: expected a batch axis, got none; use add for a single transition")
        step, next_observation = transitions_of(tensordicts.reshape(-1))
        if self.replay is None:
            self._begin(step)
        keys = self._writer.extend(**step, next_observation=next_observation)
        index = torch.as_tensor(np.asarray(keys, np.int64)).reshape(tensordicts.batch_size)
        tensordicts.set("index", index)
        return index

    def add(self, data: TensorDictBase) -> int:
        """Adds one transition, without a batch axis, with its next observation; returns its index."""
        return int(self.extend(data.unsqueeze(0))[0])

    def _begin(self, step: Mapping[str, Any]) -> None:
        """Makes the replay for such transitions."""
        first = map_leaves(lambda column: column[0], step)
        replay = Replay(Signature.like(first), [self._table], seed=self._seed)
        self._writer = TransitionWriter(replay, _TABLE, self.n_steps, self.gamma)
        self._views = self._writer.views
        self.replay = replay

    def empty(self) -> None:
        """Removes all transitions."""
        if self.replay is not None:
            self.replay.reset(_TABLE)

    def __len__(self) -> int:
        """Number of transitions."""
        return 0 if self.replay is None else len(self.replay.table(_TABLE))

    # ---- sampling ----------------------------------------------------------------------------------------------------

    def sample(self, batch_size: int | None = None) -> TensorDict:
        """Draws transitions, each by itself: one may come twice.

        Args:
            batch_size: number B of transitions; None is that of the buffer.

        Returns:
            A TensorDict `[B]` of the keys that were written, and "index". "reward" and the flags are `[B, 1]`.

        Raises:
            ValueError: the buffer is empty, or there is no batch_size.
        """
        size = self.batch_size if batch_size is None else batch_size
        if size is None:
            raise ValueError("sample: expected a batch_size, here or as an argument of the buffer")
        if self.replay is None or not len(self):
            raise ValueError("sample: the buffer is empty; extend it first")
        sampled = self.replay.sample(_TABLE, size, views=self._views, timeout=0)
        columns = dict(sampled.data)
        if self.n_steps > 1:
            columns["steps_to_next_obs"] = columns["n"]
        found = tensordict_of(columns)
        found.set("index", torch.as_tensor(sampled.info.keys.astype(np.int64)))
        if self.priorities.exponent is not None:
            found.set("priority_weight", torch.as_tensor(self.priorities.weights(sampled.info)))
        return found if self.device is None else found.to(self.device)

    def __iter__(self) -> Iterator[TensorDict]:
        """Yields samples of the buffer's batch_size without end."""
        while True:
            yield self.sample()

    # ---- priorities --------------------------------------------------------------------------------------------------

    def update_tensordict_priority(self, data: TensorDictBase) -> None:
        """Sets the priorities of a sample, or of what `extend` took, from its `priority_key`.

        Args:
            data: with "index", and with priorities of one number a transition, or of several: the largest counts.

        Raises:
            KeyError: a key is missing.
            ValueError: see `update_priority`.
        """
        index = data["index"].reshape(-1)
        self.update_priority(index, data[self.priority_key].reshape(len(index), -1).amax(1))

    def update_priority(self, index: torch.Tensor | int, priority: torch.Tensor | float) -> None:
        """Sets priorities; transitions that were removed since are ignored.

        Args:
            index: of `extend` or of a sample, `[B]`.
            priority: `[B]` or `[B, 1]`.

        Raises:
            ValueError: the buffer is empty or has no priorities; or one is negative or not finite. Nothing changes.
        """
        if self.replay is None:
            raise ValueError("update_priority: the buffer is empty; extend it first")
        self.priorities.update(self.replay, _TABLE, torch.as_tensor(index), torch.as_tensor(priority))
