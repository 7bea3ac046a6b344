"""Trees of NumPy arrays as trees of torch tensors or JAX arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headrace.arrays import in_native_order
from headrace.trees import map_leaves

if TYPE_CHECKING:
    import torch


def to_torch(tree: Any) -> Any:
    """Returns the tree with torch tensors over the same memory; see `as_tensor`.

    Raises:
        ImportError: torch is not installed.
    """
    return map_leaves(as_tensor, tree)


def as_tensor(array: NDArray[Any] | torch.Tensor) -> torch.Tensor:
    """Returns a writable tensor of the same shape and values, over the array's memory if torch can use it.

    torch can use neither read-only memory, nor negative strides, nor another byte order than the machine's.
    A tensor is returned as it is.
    """
    import torch

    if isinstance(array, torch.Tensor):
        return array
    array = in_native_order(np.asarray(array))
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = array.copy()
    return torch.from_numpy(array)


def over_same_memory(array: NDArray[Any]) -> NDArray[Any]:
    """Returns a writable array over the memory of a read-only view, or the array itself if its owner is read-only.

    >>> view = np.zeros(3)[1:]
    >>> view.flags.writeable = False
    >>> over_same_memory(view)[0] = 7
    >>> view.tolist()
    [7.0, 0.0]
    """
    writable = array.view()
    try:
        writable.flags.writeable = True
    except ValueError:
        return array
    return writable


def to_jax(tree: Any, device: Any = None) -> Any:
    """Returns the tree with JAX arrays; 64-bit leaves follow JAX's own setting.

    Args:
        tree: a tree of NumPy arrays. JAX may use their memory, and then keeps it alive.
        device: a `jax.Device`, or None for JAX's default.

    Raises:
        ImportError: JAX is not installed.
        OverflowError: an integer does not fit the dtype to which JAX narrows it.
    """
    import jax

    arrays: list[Any] = []

    def take(leaf: Any) -> None:
        if isinstance(leaf, jax.Array):
            arrays.append(leaf)
            return
        array = in_native_order(np.asarray(leaf))
        check_fits(array, jax.dtypes.canonicalize_dtype(array.dtype))
        arrays.append(array)

    map_leaves(take, tree)
    # One call for all arrays, because each call has overhead.
    placed = iter(jax.device_put(arrays, device))
    return map_leaves(lambda _: next(placed), tree)


def check_fits(array: NDArray[Any], narrowed: np.dtype[Any]) -> None:
    """Refuses integers that would overflow.

    Raises:
        OverflowError: values do not fit; the message has their range.
    """
    if array.dtype.kind not in "iu" or narrowed.itemsize >= array.dtype.itemsize or not array.size:
        return
    limits, least, most = np.iinfo(narrowed), array.min(), array.max()
    if least < limits.min or most > limits.max:
        raise OverflowError(
            f"JAX: values from {least} to {most} of dtype {array.dtype} do not fit {narrowed}, to which JAX "
            "narrows them; set jax_enable_x64, or store a smaller dtype"
        )
