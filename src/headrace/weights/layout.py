"""Layout of a set of weights in a slot of memory, and conversion of arrays of other libraries."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import optree
import xxhash
from numpy.typing import NDArray

from headrace.errors import SpecError

_ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Place:
    """One array in a slot.

    Attributes:
        path: keys from the root of the tree.
        offset: bytes from the start of the slot.
        torch_dtype: name of a torch dtype that NumPy lacks ("bfloat16"), stored as integers of the same width.
    """

    path: tuple[Any, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int
    torch_dtype: str | None

    @property
    def name(self) -> str:
        """The path as text."""
        return path_name(self.path)

    def view(self, buffer: Any, start: int) -> NDArray[Any]:
        """Returns the array in the slot that begins at byte `start` of `buffer`."""
        return np.ndarray(self.shape, self.dtype, buffer=buffer, offset=start + self.offset)


class WeightLayout:
    """Names, shapes, dtypes and offsets of the arrays of a pytree.

    Picklable. Paths may hold any keys (haiku's contain "/").

    Attributes:
        places: of the arrays, in order.
        nbytes: of a slot.
        fingerprint: short text, which differs from that of a layout with other names, shapes or dtypes.

    Raises:
        SpecError: with the path of a leaf that is not an array.

    >>> layout = WeightLayout({"layer": {"w": np.zeros((2, 3), "float32"), "b": np.zeros(3)}})
    >>> [(place.name, place.shape, place.offset) for place in layout.places]
    [('layer/b', (3,), 0), ('layer/w', (2, 3), 64)]
    """

    def __init__(self, weights: Any) -> None:
        paths, leaves, self._treedef = optree.tree_flatten_with_path(weights)
        places, offset = [], 0
        for path, leaf in zip(paths, leaves, strict=True):
            array, torch_dtype = host_array(leaf, path_name(path))
            places.append(Place(path, array.shape, array.dtype, offset, torch_dtype))
            offset += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
        self.places = tuple(places)
        self.nbytes = max(offset, _ALIGNMENT)
        every = [(place.name, place.shape, place.dtype.str, place.torch_dtype) for place in places]
        self.fingerprint = xxhash.xxh3_128_hexdigest(repr(every).encode("utf-8", "surrogatepass"))

    def arrays(self, weights: Any) -> list[NDArray[Any]]:
        """Returns the arrays of `weights` on the host in the order of `places`; copies only those of other devices.

        Raises:
            SpecError: names, shapes or dtypes differ; the message has the path.
        """
        paths, leaves, _ = optree.tree_flatten_with_path(weights)
        by_path = dict(zip(paths, leaves, strict=True))
        known = [place.path for place in self.places]
        missing = [path_name(path) for path in known if path not in by_path]
        extra = [path_name(path) for path in paths if path not in set(known)]
        if missing or extra:
            raise SpecError(
                "weights: expected the names they had first; "
                + "; ".join(
                    f"{what} {', '.join(n)}" for what, n in (("missing", missing), ("extra", extra)) if n
                )
            )
        return [_checked(place, by_path[place.path]) for place in self.places]

    def tree(self, arrays: Iterable[NDArray[Any]]) -> Any:
        """Returns the pytree of these arrays. An array whose dtype only torch has becomes a tensor."""
        leaves = [_as_given(place, array) for place, array in zip(self.places, arrays, strict=True)]
        return optree.tree_unflatten(self._treedef, leaves)


def same_bytes(one: Iterable[NDArray[Any]], other: Iterable[NDArray[Any]]) -> bool:
    """Whether arrays of the same shapes and dtypes are equal, bit by bit: NaN equals NaN."""
    return all(np.array_equal(_bytes(mine), _bytes(theirs)) for mine, theirs in zip(one, other, strict=True))


def _bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def path_name(path: tuple[Any, ...]) -> str:
    """The path as text: keys joined by "/"."""
    return "/".join(map(str, path)) or "weights"


def host_array(leaf: Any, name: str) -> tuple[NDArray[Any], str | None]:
    """Returns a leaf as a NumPy array in host memory, and its torch dtype if NumPy lacks the dtype.

    Raises:
        SpecError: it is not an array of numbers.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(leaf, torch.Tensor):
        tensor = leaf.detach().cpu()
        try:
            return tensor.numpy(), None
        except TypeError:
            same_width = {1: torch.uint8, 2: torch.int16}[tensor.element_size()]
            return tensor.contiguous().view(same_width).numpy(), str(tensor.dtype).removeprefix("torch.")
    try:
        has_dlpack_alone = hasattr(leaf, "__dlpack__") and not hasattr(leaf, "__array__")
        array = np.from_dlpack(leaf) if has_dlpack_alone else np.asarray(leaf)
    except Exception as error:
        raise SpecError(f"{name}: expected an array, got {type(leaf).__name__}: {error}") from error
    # Kind V without fields: bfloat16 and its like, which JAX adds to NumPy.
    if array.dtype.kind not in "biufc" and (array.dtype.kind != "V" or array.dtype.names is not None):
        raise SpecError(
            f"{name}: expected an array of numbers, got {type(leaf).__name__}; weights are nested dicts, lists and "
            f"tuples of arrays"
        )
    return array, None


def _checked(place: Place, leaf: Any) -> NDArray[Any]:
    array, torch_dtype = host_array(leaf, place.name)
    if (array.shape, array.dtype, torch_dtype) != (place.shape, place.dtype, place.torch_dtype):
        raise SpecError(
            f"{place.name}: expected {_describe(place.shape, place.dtype, place.torch_dtype)}, "
            f"got {_describe(array.shape, array.dtype, torch_dtype)}"
        )
    return array


def _describe(shape: tuple[int, ...], dtype: np.dtype[Any], torch_dtype: str | None) -> str:
    return f"{torch_dtype or dtype.name}[{', '.join(map(str, shape))}]"


def _as_given(place: Place, array: NDArray[Any]) -> Any:
    if place.torch_dtype is None:
        return array
    try:
        import torch
    except ImportError as error:
        raise ImportError(
            f'{place.name} is {place.torch_dtype}, which needs torch: pip install "headrace[torch]"'
        ) from error
    return torch.from_numpy(array).view(getattr(torch, place.torch_dtype))
