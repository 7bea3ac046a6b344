"""Options and metadata as strict JSON and back, exactly, with arrays, NaN and tuples."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from headrace.errors import SpecError
from headrace.trees import MAX_DEPTH

# Marks values that JSON has no form for: {"$": "tuple", "items": [...]}.
_MARK = "$"


def encode(value: Any, path: str, depth: int = 0) -> Any:
    """Returns a value in the form that `json.dumps(allow_nan=False)` takes.

    Args:
        value: None, numbers, booleans, strings, bytes, NumPy arrays and scalars of these, and mappings with string
            keys, lists and tuples of these.
        path: place of the value, for messages.
        depth: number of containers around the value.

    Raises:
        SpecError: any other value; with its path.

    >>> encode({"low": (1, float("nan"))}, "options")
    {'low': {'$': 'tuple', 'items': [1, {'$': 'float', 'value': 'nan'}]}}
    """
    if depth > MAX_DEPTH:
        raise SpecError(f"{path}: expected at most {MAX_DEPTH} levels; does it contain itself?")
    match value:
        case np.ndarray() | np.generic():
            return _encode_array(value, path)
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else {_MARK: "float", "value": repr(value)}
        case bytes():
            return {_MARK: "bytes", "value": base64.b64encode(value).decode()}
        case Mapping():
            return _encode_mapping(value, path, depth)
        case list() | tuple():
            items = [encode(each, f"{path}/{i}", depth + 1) for i, each in enumerate(value)]
            return items if isinstance(value, list) else {_MARK: "tuple", "items": items}
    raise SpecError(
        f"{path}: expected numbers, strings, arrays, or mappings, lists and tuples of these, got "
        f"{type(value).__name__}"
    )


def decode(value: Any) -> Any:
    """Returns the value that `encode` was given.

    Raises:
        SpecError: anything that `encode` does not write.

    >>> decode(encode({"a": np.arange(3, dtype="uint8")}, "options"))
    {'a': array([0, 1, 2], dtype=uint8)}
    """
    if isinstance(value, list):
        return [decode(each) for each in value]
    if not isinstance(value, dict):
        return value
    if _MARK not in value:
        return {key: decode(each) for key, each in value.items()}
    try:
        return _decode_marked(value)
    except (KeyError, TypeError, ValueError, OverflowError, binascii.Error) as error:
        raise SpecError(f"expected a marked value, got {value!r:.80}: {error}") from error


def _encode_mapping(value: Mapping[Any, Any], path: str, depth: int) -> Any:
    for key in value:
        if not isinstance(key, str):
            raise SpecError(f"{path}: expected keys that are strings, got {key!r}")
    encoded = {key: encode(each, f"{path}/{key}", depth + 1) for key, each in value.items()}
    return {_MARK: "dict", "items": list(encoded.items())} if _MARK in encoded else encoded


def _encode_array(value: Any, path: str) -> Any:
    array = np.asarray(value)
    if array.dtype.kind not in "biufcUS":
        raise SpecError(f"{path}: expected an array of numbers, booleans or strings, got {array.dtype}")
    return {
        _MARK: "array" if isinstance(value, np.ndarray) else "scalar",
        "dtype": array.dtype.str,
        "shape": list(array.shape),
        "data": base64.b64encode(array.tobytes()).decode(),
    }


def _decode_marked(value: dict[str, Any]) -> Any:
    match value[_MARK]:
        case "float":
            return float(value["value"])
        case "bytes":
            return base64.b64decode(value["value"], validate=True)
        case "tuple":
            return tuple(decode(each) for each in value["items"])
        case "dict":
            return {key: decode(each) for key, each in value["items"]}
        case "array" | "scalar" as mark:
            dtype = np.dtype(value["dtype"])
            if dtype.kind not in "biufcUS":
                raise ValueError(f"expected a dtype of numbers, booleans or strings, got {dtype}")
            data = base64.b64decode(value["data"], validate=True)
            array = np.frombuffer(data, dtype).reshape(value["shape"]).copy()
            return array if mark == "array" else array[()]
        case mark:
            raise ValueError(f"unknown mark {mark!r}")
