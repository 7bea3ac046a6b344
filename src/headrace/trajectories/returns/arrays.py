"""Arrays of one library, as the returns compute with them."""

from __future__ import annotations

import sys
from typing import Any, Protocol

from headrace.trajectories.returns.numpy_arrays import NumpyArrays


class Arrays(Protocol):
    """One library: reads arguments, computes with arrays `[..., T]`, and gives results of the argument's kind."""

    def numbers(self, name: str, value: Any) -> Any:
        """Returns an argument as numbers of the dtype in which this library computes.

        Raises:
            TypeError: an array of another library, or not of real numbers.
        """

    def flags(self, name: str, value: Any) -> Any:
        """Returns an argument as flags.

        Raises:
            TypeError: an array of another library, or not of booleans.
        """

    def result(self, array: Any) -> Any:
        """Returns an array in the dtype and place of results."""

    def before_last(self, flags: Any) -> Any:
        """Returns flags, which may be overwritten, with False at the last step."""

    def where(self, flags: Any, one: Any, other: Any) -> Any:
        """Returns entries of `one` where a flag is set, of `other` elsewhere; either may be a number."""

    def scaled(self, flags: Any, factor: float) -> Any:
        """Returns the factor where a flag is set, 0 elsewhere, in the dtype of the computation."""

    def at_most(self, array: Any, limit: float) -> Any:
        """Returns the array with no entry above the limit."""

    def exp(self, array: Any) -> Any:
        """Returns the exponential of each entry."""

    def following(self, array: Any) -> Any:
        """Returns the entry of the next step at each step; at the last step its own."""

    def backward(self, offsets: Any, factors: Any) -> Any:
        """Returns `y[t] = offsets[t] + factors[t] * y[t + 1]`; after a factor of 0 nothing is read."""


def arrays_of(like: Any) -> Arrays:
    """Returns the library of an argument, for results of its device and dtype; lists belong to NumPy.

    Only a library that the program has loaded can have made the argument.
    """
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    if torch is not None and isinstance(like, torch.Tensor):
        from headrace.trajectories.returns.torch_arrays import torch_arrays

        return torch_arrays(like)
    if jax is not None and isinstance(like, jax.Array):
        from headrace.trajectories.returns.jax_arrays import JaxArrays

        return JaxArrays(like)
    return NumpyArrays(like)
