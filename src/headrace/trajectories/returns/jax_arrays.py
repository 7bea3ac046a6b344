"""JAX arrays, also traced ones under `jax.jit`."""

from __future__ import annotations

from typing import Any

import numpy as np

try:
    import jax
    import jax.numpy as jnp
except ImportError as error:
    raise ImportError('returns of JAX arrays need JAX: pip install "headrace[jax]"') from error


class JaxArrays:
    """Arrays of JAX; NumPy arrays beside them are taken too, as JAX does.

    Args:
        like: gives the dtype of results; integers give float64, or JAX's widest float.
    """

    def __init__(self, like: Any) -> None:
        self._dtype = like.dtype if jnp.issubdtype(like.dtype, jnp.floating) else jnp.result_type(float)
        self._computed = self._dtype if self._dtype.itemsize >= 4 else jnp.dtype(jnp.float32)

    def numbers(self, name: str, value: Any) -> Any:
        """Returns an argument in the dtype of results or float32.

        Raises:
            TypeError: not an array of real numbers.
        """
        array = self._array(name, value)
        if jnp.issubdtype(array.dtype, jnp.complexfloating):
            raise TypeError(f"{name}: expected real numbers, got dtype {array.dtype}")
        return array.astype(self._computed)

    def flags(self, name: str, value: Any) -> Any:
        """Returns an argument as flags.

        Raises:
            TypeError: not an array of booleans.
        """
        array = self._array(name, value)
        if array.dtype != jnp.bool_:
            raise TypeError(f"{name}: expected booleans, got dtype {array.dtype}")
        return array

    def result(self, array: Any) -> Any:
        """Returns an array in the dtype of results."""
        return array.astype(self._dtype)

    def before_last(self, flags: Any) -> Any:
        """Clears the flags of the last step."""
        return flags.at[..., -1:].set(False)

    def where(self, flags: Any, one: Any, other: Any) -> Any:
        """Chooses by flag."""
        return jnp.where(flags, one, other)

    def scaled(self, flags: Any, factor: float) -> Any:
        """Returns the factor where a flag is set, 0 elsewhere."""
        return flags.astype(self._computed) * factor

    def at_most(self, array: Any, limit: float) -> Any:
        """Clips from above."""
        return jnp.minimum(array, limit)

    def exp(self, array: Any) -> Any:
        """Returns the exponential of each entry."""
        return jnp.exp(array)

    def following(self, array: Any) -> Any:
        """Returns the entry of the next step at each step; at the last step its own."""
        return jnp.concatenate([array[..., 1:], array[..., -1:]], axis=-1)

    def backward(self, offsets: Any, factors: Any) -> Any:
        """Scans from the last step to the first."""

        def step(value: Any, given: Any) -> tuple[Any, Any]:
            offset, factor = given
            value = offset + jnp.where(factor == 0, 0, factor * value)
            return value, value

        by_time = (jnp.moveaxis(offsets, -1, 0), jnp.moveaxis(factors, -1, 0))
        _, values = jax.lax.scan(step, jnp.zeros(offsets.shape[:-1], offsets.dtype), by_time, reverse=True)
        return jnp.moveaxis(values, 0, -1)

    def _array(self, name: str, value: Any) -> Any:
        if not isinstance(value, jax.Array | np.ndarray):
            raise TypeError(
                f"{name}: expected a jax.Array, as the other arguments are, got {type(value).__name__}"
            )
        return jnp.asarray(value)
