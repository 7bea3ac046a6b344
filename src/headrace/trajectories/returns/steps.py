"""The arguments that all returns share: shapes, flags, and which steps go on."""

from __future__ import annotations

from typing import Any

from headrace.trajectories.returns.arrays import Arrays, arrays_of


class Steps:
    """The steps of one call.

    Args:
        like: the argument whose library, device and dtype the results have.
        rewards: numbers `[..., T]`, whose shape all others must have.
        terminated: flags.
        truncated: flags.
        ends: flags of cuts, or None.
        mask: flags of real steps, or None.

    Attributes:
        arrays: the library.
        rewards: in the dtype of the computation.
        terminated: flags.
        more: flags: the next step goes on with the same trajectory.

    Raises:
        ValueError: shapes differ.
        TypeError: arrays of several libraries or of wrong dtypes.
    """

    # Rules: trajectories R1, R2

    def __init__(
        self, like: Any, rewards: Any, terminated: Any, truncated: Any, ends: Any, mask: Any
    ) -> None:
        self.arrays: Arrays = arrays_of(like)
        self.rewards = self.arrays.numbers("rewards", rewards)
        if not self.rewards.shape:
            raise ValueError("rewards: expected a time axis, got a single number")
        self.terminated = self.flags("terminated", terminated)
        self._mask = None if mask is None else self.flags("mask", mask)
        over = self.terminated | self.flags("truncated", truncated)
        if ends is not None:
            over = over | self.flags("ends", ends)
        self.more = self.arrays.before_last(~over)
        if self._mask is not None:
            self.more = self.more & self.arrays.following(self._mask)

    def numbers(self, name: str, value: Any) -> Any:
        """Returns an argument in the dtype of the computation."""
        return self._of_one_shape(name, self.arrays.numbers(name, value))

    def flags(self, name: str, value: Any) -> Any:
        """Returns an argument as flags."""
        return self._of_one_shape(name, self.arrays.flags(name, value))

    def bootstrapped(self, next_values: Any, gamma: float) -> Any:
        """Returns the reward and the discounted value of the next observation, which is 0 after a termination."""
        return self.rewards + gamma * self.arrays.where(self.terminated, 0.0, next_values)

    def result(self, array: Any) -> Any:
        """Returns an array as the caller gets it: 0 where the mask is False."""
        if self._mask is not None:
            array = self.arrays.where(self._mask, array, 0.0)
        return self.arrays.result(array)

    def _of_one_shape(self, name: str, array: Any) -> Any:
        if array.shape != self.rewards.shape:
            expected, got = list(self.rewards.shape), list(array.shape)
            raise ValueError(f"{name}: expected the shape of rewards, {expected}, got {got}")
        return array
