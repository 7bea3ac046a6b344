"""torch tensors: on the CPU by NumPy and its compiled loop, on another device by torch itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace.trajectories.returns.numpy_arrays import Array, NumpyArrays

try:
    import torch
except ImportError as error:
    raise ImportError('returns of tensors need torch: pip install "headrace[torch]"') from error


# NumPy lacks the other floats of torch, which are all shorter than float32.
_NUMPY_DTYPES = {
    kind: np.dtype(str(kind).removeprefix("torch.")) for kind in (torch.float64, torch.float32, torch.float16)
}


def torch_arrays(like: torch.Tensor) -> TorchOnCpu | TorchOnDevice:
    """Returns the arithmetic for the device of a tensor."""
    return TorchOnCpu(like) if like.device.type == "cpu" else TorchOnDevice(like)


class TorchOnCpu(NumpyArrays):
    """Tensors on the CPU, as NumPy arrays over their memory.

    Args:
        like: gives the dtype of results; integers give float64.
    """

    def __init__(self, like: torch.Tensor) -> None:
        self._tensors = _floating(like)
        self._dtype = _NUMPY_DTYPES.get(self._tensors, np.dtype(np.float64))

    def result(self, array: Array) -> Any:
        """Returns a tensor in the dtype of results."""
        return torch.from_numpy(super().result(array)).to(self._tensors)

    def _array(self, name: str, value: Any) -> Array:
        tensor = _checked(name, value)
        is_known = tensor.dtype in _NUMPY_DTYPES or not tensor.is_floating_point()
        # Forced: without its gradient, and on the CPU.
        return (tensor if is_known else tensor.float()).numpy(force=True)


class TorchOnDevice:
    """Tensors on a device, computed there.

    Args:
        like: gives device and dtype of results; integers give float64.
    """

    def __init__(self, like: torch.Tensor) -> None:
        self._device, self._dtype = like.device, _floating(like)
        self._computed = self._dtype if self._dtype.itemsize >= 4 else torch.float32

    def numbers(self, name: str, value: Any) -> torch.Tensor:
        """Returns an argument on the device, in the dtype of results or float32.

        Raises:
            TypeError: not a tensor of real numbers.
        """
        tensor = _checked(name, value)
        if tensor.is_complex():
            raise TypeError(f"{name}: expected real numbers, got dtype {tensor.dtype}")
        return tensor.detach().to(self._device, self._computed)

    def flags(self, name: str, value: Any) -> torch.Tensor:
        """Returns an argument on the device.

        Raises:
            TypeError: not a tensor of booleans.
        """
        tensor = _checked(name, value)
        if tensor.dtype != torch.bool:
            raise TypeError(f"{name}: expected booleans, got dtype {tensor.dtype}")
        return tensor.to(self._device)

    def result(self, array: torch.Tensor) -> torch.Tensor:
        """Returns a tensor in the dtype of results."""
        return array.to(self._dtype)

    def before_last(self, flags: torch.Tensor) -> torch.Tensor:
        """Clears the flags of the last step."""
        flags[..., -1:] = False
        return flags

    def where(self, flags: torch.Tensor, one: Any, other: Any) -> torch.Tensor:
        """Chooses by flag."""
        return torch.where(flags, one, other)

    def scaled(self, flags: torch.Tensor, factor: float) -> torch.Tensor:
        """Returns the factor where a flag is set, 0 elsewhere."""
        return flags.to(self._computed) * factor

    def at_most(self, array: torch.Tensor, limit: float) -> torch.Tensor:
        """Clips from above."""
        return array.clamp(max=limit)

    def exp(self, array: torch.Tensor) -> torch.Tensor:
        """Returns the exponential of each entry."""
        return array.exp()

    def following(self, array: torch.Tensor) -> torch.Tensor:
        """Returns the entry of the next step at each step; at the last step its own."""
        return torch.cat([array[..., 1:], array[..., -1:]], dim=-1)

    def backward(self, offsets: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
        """Composes maps of 1, 2, 4, ... steps: a few calls on whole arrays instead of one a step.

        Source: W. D. Hillis and G. L. Steele, "Data parallel algorithms" (1986).
        """
        values, products, span = offsets, factors, 1
        while span < values.shape[-1]:
            later_values = torch.nn.functional.pad(values[..., span:], (0, span))
            later_products = torch.nn.functional.pad(products[..., span:], (0, span))
            values = values + torch.where(products == 0, 0, products * later_values)
            products = torch.where(products == 0, 0, products * later_products)
            span *= 2
        return values


def _floating(like: torch.Tensor) -> torch.dtype:
    return like.dtype if like.is_floating_point() else torch.float64


def _checked(name: str, value: Any) -> torch.Tensor:
    if not isinstance(value, torch.Tensor):
        raise TypeError(
            f"{name}: expected a torch.Tensor, as the other arguments are, got {type(value).__name__}"
        )
    return value
