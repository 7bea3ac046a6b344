"""Batches of `jax.Array`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.batches.conversion import to_jax
from headrace.replay.sampling.replay_sample import ColumnsByName, SampleInfo
from headrace.trees import map_leaves

try:
    import jax
except ImportError as error:
    raise ImportError('to="jax" needs JAX: pip install "headrace[jax]"') from error


@dataclass(slots=True)
class JaxBatch(ColumnsByName):
    """A `ReplaySample` of JAX arrays; it can be pickled.

    Attributes:
        data: the sample's tree, of arrays `[B, ...]` or `[B, L, ...]`.
        info: keys, priorities and so on of the items, in NumPy.
        mask: bool[B, L], or None.
    """

    data: Any
    info: SampleInfo
    mask: Any = None

    def to(self, device: Any) -> JaxBatch:
        """Returns the batch on another device: a `jax.Device`, or a platform's name."""
        wanted = jax_device(device)
        data, mask = map_leaves(lambda array: jax.device_put(array, wanted), (self.data, self.mask))
        return JaxBatch(data, self.info, mask)


class ToJax:
    """Conversion to JAX arrays on a device; 64-bit columns follow JAX's own setting.

    Raises:
        ValueError: the device does not exist.
    """

    # Rules: loaders LD5

    def __init__(self, device: Any) -> None:
        self._device = None if device is None else jax_device(device)

    def convert(self, sample: Any) -> JaxBatch:
        """Starts the copies.

        Raises:
            OverflowError: an integer does not fit the type to which JAX narrows it.
        """
        data, mask = to_jax((sample.data, sample.mask), self._device)
        return JaxBatch(data, sample.info, mask)

    def deliver(self, converted: JaxBatch) -> JaxBatch:
        """Returns the batch as it is: JAX waits for its copies by itself."""
        return converted


def jax_device(device: Any) -> Any:
    """Returns a `jax.Device`, given itself or the name of its platform.

    Raises:
        ValueError: the platform does not exist.
    """
    if not isinstance(device, str):
        if isinstance(device, jax.Device):
            return device
        raise ValueError(f"device: expected a jax.Device or a platform such as 'cpu', got {device!r}")
    try:
        return jax.devices(device)[0]
    except RuntimeError as error:
        raise ValueError(f"device: expected a platform that JAX has here, got {device!r}: {error}") from error
