"""NumPy arrays: computed in float64, rounded once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.trajectories.returns.backward import run_backward

Array = NDArray[Any]


def floating(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Returns a dtype if it is floating, else float64."""
    return dtype if dtype.kind == "f" else np.dtype(np.float64)


class NumpyArrays:
    """Arrays and lists.

    Args:
        like: gives the dtype of results; integers give float64.
    """

    def __init__(self, like: Any) -> None:
        self._dtype = floating(np.asarray(like).dtype)

    def numbers(self, name: str, value: Any) -> Array:
        """Returns an argument in float64.

        Raises:
            TypeError: not an array of real numbers.
        """
        array = self._array(name, value)
        if array.dtype.kind not in "biuf":
            raise TypeError(f"{name}: expected real numbers, got dtype {array.dtype}")
        return array.astype(np.float64, copy=False)

    def flags(self, name: str, value: Any) -> Array:
        """Returns an argument as flags.

        Raises:
            TypeError: not an array of booleans.
        """
        array = self._array(name, value)
        if array.dtype != np.bool_ and array.size:
            raise TypeError(f"{name}: expected booleans, got dtype {array.dtype}")
        return array.astype(np.bool_, copy=False)

    def result(self, array: Array) -> Any:
        """Rounds to the dtype of results."""
        return array.astype(self._dtype, copy=False)

    def before_last(self, flags: Array) -> Array:
        """Clears the flags of the last step."""
        flags[..., -1:] = False
        return flags

    def where(self, flags: Array, one: Any, other: Any) -> Array:
        """Chooses by flag."""
        return np.asarray(np.where(flags, one, other))

    def scaled(self, flags: Array, factor: float) -> Array:
        """Returns the factor where a flag is set, 0 elsewhere."""
        return np.asarray(flags * np.float64(factor))

    def at_most(self, array: Array, limit: float) -> Array:
        """Clips from above."""
        return np.minimum(array, limit)

    def exp(self, array: Array) -> Array:
        """Returns the exponential of each entry."""
        return np.asarray(np.exp(array))

    def following(self, array: Array) -> Array:
        """Returns the entry of the next step at each step; at the last step its own."""
        return np.concatenate([array[..., 1:], array[..., -1:]], axis=-1)

    def backward(self, offsets: Array, factors: Array) -> Array:
        """Runs the compiled loop."""
        values = np.array(offsets, np.float64, order="C")
        if values.size:
            run_backward(values.reshape(-1), np.ascontiguousarray(factors).reshape(-1), values.shape[-1])
        return values

    def _array(self, name: str, value: Any) -> Array:
        if isinstance(value, np.ndarray):
            return value
        if not isinstance(value, list | tuple | float | int | np.generic):
            raise TypeError(
                f"{name}: expected a NumPy array, as the other arguments are, got {type(value).__name__}"
            )
        return np.asarray(value)
