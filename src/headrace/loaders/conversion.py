"""Conversion of a NumPy sample to the learner's arrays."""

from __future__ import annotations

from typing import Any, Protocol

KINDS = ("numpy", "torch", "jax")


class Conversion(Protocol):
    """Conversion in two steps, so that a copy to a device runs while the learner still uses the batch before."""

    def convert(self, sample: Any) -> Any:
        """Starts the conversion in the thread that draws. The sample belongs to the conversion from here on."""

    def deliver(self, converted: Any) -> Any:
        """Finishes the conversion in the learner's thread and returns a batch that is ready to use."""


def conversion_to(kind: str, device: Any) -> Conversion | None:
    """Returns the conversion for `Loader(to=kind, device=device)`, None for NumPy; imports the framework.

    Raises:
        ValueError: an unknown kind, a device for NumPy, or a device that does not exist.
        ImportError: the framework is not installed; the message names the extra.
    """
    match kind:
        case "numpy":
            if device is not None:
                raise ValueError(f'device: expected None with to="numpy", got {device!r}')
            return None
        case "torch":
            from headrace.loaders.torch_batch import torch_conversion

            return torch_conversion(device)
        case "jax":
            from headrace.loaders.jax_batch import ToJax

            return ToJax(device)
    raise ValueError(f"to: expected one of {', '.join(map(repr, KINDS))}, got {kind!r}")
