"""Batches of n-step transitions."""

# Rules: collectors CR10

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.checks import check_count, check_share
from headrace.collectors.batches.batch import Batch
from headrace.trajectories.n_step import n_step
from headrace.trees import map_leaves


class MultiStep:
    """Turns the transitions of a batch into n-step transitions; for the argument `postproc` of a collector.

    The reward of a row becomes `sum(gamma**k * reward[t + k])` over the next k < `n_step` rows of its trajectory that
    exist in the batch. The sum stops after a row that is terminated or truncated. `next_observation`, `terminated` and
    `truncated` are those of the last row used. (Sutton and Barto, "Reinforcement Learning", 2nd edition, equation 7.1.)

    New columns:

    * `original_reward`, float32: the reward of the row itself.
    * `steps_to_next_obs`, int64: the number of rewards in the sum.
    * `discount`, float32: `gamma ** steps_to_next_obs`, also where an episode ends. The target of a value is
      `reward + discount * (1 - terminated) * value(next_observation)`.

    Masked rows stay zero.

    Args:
        n_step: largest number of rewards in a sum.
        gamma: discount of one step, from 0 to 1.

    Raises:
        ValueError, TypeError: an argument that does not fit; a flat batch.

    >>> batch = Batch(
    ...     {
    ...         "reward": np.array([[1, 2, 4]], np.float32),
    ...         "terminated": np.array([[False, False, True]]),
    ...         "truncated": np.zeros((1, 3), bool),
    ...         "next_observation": np.array([[1, 2, 3]]),
    ...         "episode_id": np.zeros((1, 3), int),
    ...         "mask": np.ones((1, 3), bool),
    ...     }
    ... )
    >>> batch = MultiStep(2, 0.5)(batch)
    >>> batch.reward.tolist(), batch.next_observation.tolist(), batch.terminated.tolist()
    ([[2.0, 4.0, 4.0]], [[2, 3, 3]], [[False, True, True]])
    """

    def __init__(self, n_step: int, gamma: float) -> None:
        self.n_step = check_count("n_step", n_step, 1)
        self.gamma = check_share("gamma", gamma)

    def __call__(self, batch: Batch) -> Batch:
        """Returns the batch with n-step transitions; the arrays of the given one stay as they are."""
        if len(batch.shape) != 2:
            raise ValueError(f"MultiStep: expected a batch [N, T], got {list(batch.shape)}")
        goes_on, reward, mask = _goes_on(batch), batch["reward"], batch["mask"]
        steps = self._summed(np.ones_like(goes_on), goes_on, 1.0).astype(np.int64) * mask
        lanes = np.arange(len(mask))[:, None]
        last = np.arange(mask.shape[1]) + np.maximum(steps, 1) - 1
        of_last = {
            name: map_leaves(lambda leaf: leaf[lanes, last], batch[name])
            for name in ("next_observation", "terminated", "truncated")
        }
        return batch.with_columns(
            {
                **of_last,
                "reward": self._summed(reward, goes_on, self.gamma).astype(reward.dtype),
                "original_reward": reward.copy(),
                "steps_to_next_obs": steps,
                "discount": (self.gamma**steps * mask).astype(np.float32),
            }
        )

    def _summed(
        self, rewards: NDArray[Any], goes_on: NDArray[np.float64], gamma: float
    ) -> NDArray[np.float64]:
        """Returns the sums of `[N, T]` rewards, `[N, T]`."""
        returns, _, _ = n_step(rewards.T, goes_on.T, self.n_step, gamma)
        sums: NDArray[np.float64] = returns.T
        return sums

    def __repr__(self) -> str:
        return f"MultiStep(n_step={self.n_step}, gamma={self.gamma})"


def _goes_on(batch: Batch) -> NDArray[np.float64]:
    """Returns float64[N, T]: 1 where the trajectory of a row goes on in the next row of the batch, else 0."""
    ids, ended = batch["episode_id"], batch["terminated"] | batch["truncated"]
    goes_on = np.zeros(ids.shape)
    goes_on[:, :-1] = batch["mask"][:, :-1] & ~ended[:, :-1] & (ids[:, 1:] == ids[:, :-1])
    return goes_on
