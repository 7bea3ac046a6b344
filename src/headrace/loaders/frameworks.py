"""The frameworks of learners: each is imported when a loader first asks for its arrays."""

from __future__ import annotations

from typing import Any

from headrace.loaders.conversion import Conversion

KINDS = ("numpy", "torch", "jax")


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
