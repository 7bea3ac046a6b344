"""From a sample, which is NumPy, to the arrays that the learner wants."""

from __future__ import annotations

from typing import Any, Protocol

KINDS = ("numpy", "torch", "jax")


class Conversion(Protocol):
    """Two steps, so that a copy to a device is under way while the learner still works on the batch before."""

    def convert(self, sample: Any) -> Any:
        """Begin, in whatever thread draws. The sample belongs to the conversion from here on."""

    def deliver(self, converted: Any) -> Any:
        """Finish, in the learner's thread: what it may use at once."""


def conversion_to(kind: str, device: Any) -> Conversion | None:
    """Returns the conversion for `Loader(to=kind, device=device)`, None for NumPy; imports the framework.

    Raises:
        ValueError: an unknown kind, a device for NumPy or one that is not there.
        ImportError: the framework is not installed; names the extra.
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
