"""The frameworks of learners: each is imported when its arrays are first asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.replay.conversion.conversion import Conversion

KINDS = ("numpy", "torch", "jax")


def conversion_to(kind: str, device: Any) -> Conversion | None:
    """Returns the conversion of a loader's stream of batches, None for NumPy; imports the framework.

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
            from headrace.replay.conversion.torch_batch import torch_conversion

            return torch_conversion(device)
        case "jax":
            from headrace.replay.conversion.jax_batch import ToJax

            return ToJax(device)
    raise ValueError(f"to: expected one of {', '.join(map(repr, KINDS))}, got {kind!r}")


def converter_to(kind: str, device: Any) -> Callable[[Any], Any]:
    """Returns the conversion of single samples, which are ready when it returns; imports the framework.

    Raises:
        ValueError, ImportError: as `conversion_to`.
    """
    if kind == "torch":
        from headrace.replay.conversion.torch_batch import torch_converter

        return torch_converter(device)
    conversion = conversion_to(kind, device)
    assert conversion is not None, "a sample for NumPy needs no conversion"
    return conversion.convert
