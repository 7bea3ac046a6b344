"""Gymnasium spaces as Minari's JSON, and back.

The form is that of `minari/serialization.py` of Minari 0.5: infinite bounds are the tokens `Infinity` and `-Infinity`.
"""

# Rules: datasets K7

from __future__ import annotations

import json
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from headrace.trees import join

# Maps each key in Minari's form to the attribute of the space.
_ATTRIBUTES: dict[type[Space[Any]], dict[str, str]] = {
    spaces.Box: {"dtype": "dtype", "shape": "shape", "low": "low", "high": "high"},
    spaces.Discrete: {"dtype": "dtype", "start": "start", "n": "n"},
    spaces.MultiDiscrete: {"dtype": "dtype", "nvec": "nvec", "start": "start"},
    spaces.MultiBinary: {"n": "n"},
    spaces.Dict: {},
    spaces.Tuple: {},
    spaces.Text: {"max_length": "max_length", "min_length": "min_length", "charset": "characters"},
}
_WRITTEN = ", ".join(kind.__name__ for kind in _ATTRIBUTES)


def space_to_json(space: Space[Any], path: str) -> str:
    """Returns the space in Minari's form.

    Args:
        space: of the seven kinds that Minari has a form for, or of kinds derived from them.
        path: name of the space in errors.

    Raises:
        ValueError: another space; with its path.

    >>> space_to_json(spaces.Box(-np.inf, np.inf, (1,)), "observation_space")
    '{"type": "Box", "dtype": "float32", "shape": [1], "low": [-Infinity], "high": [Infinity]}'
    """
    return json.dumps(_describe(space, path))


def unbounded(space: Any) -> Any:
    """Returns a space of the same structure, shapes and dtypes, with boxes as wide as their dtypes; None stays None.

    >>> unbounded(spaces.Dict({"a": spaces.Box(0, 1, (2,)), "b": spaces.Discrete(3)}))
    Dict('a': Box(-inf, inf, (2,), float32), 'b': Discrete(3))
    """
    match space:
        case spaces.Dict():
            return spaces.Dict({name: unbounded(child) for name, child in space.spaces.items()})
        case spaces.Tuple():
            return spaces.Tuple([unbounded(child) for child in space.spaces])
        case spaces.Box():
            return widest_box(space.dtype, space.shape)
    return space


def widest_box(dtype: np.dtype[Any], shape: tuple[int, ...]) -> spaces.Box[Any]:
    """Returns the box of all numbers of a dtype."""
    if dtype.kind == "f":
        return spaces.Box(-np.inf, np.inf, shape, dtype.type)
    low, high = (0, 1) if dtype.kind == "b" else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    return spaces.Box(low, high, shape, dtype.type)


def space_from_json(text: Any) -> Space[Any]:
    """Returns the space that `space_to_json`, or Minari, wrote.

    Raises:
        ValueError: the text does not describe a space.

    >>> space_from_json('{"type": "Discrete", "dtype": "int64", "start": 1, "n": 3}')
    Discrete(3, start=1)
    """
    try:
        return _build(json.loads(text) if isinstance(text, str) else text)
    except (KeyError, TypeError, AttributeError, AssertionError, RecursionError, OverflowError) as error:
        raise ValueError(f"expected a space as Minari describes it: {error!r}") from error


def _describe(space: Any, path: str) -> dict[str, Any]:
    kind = next((kind for kind in _ATTRIBUTES if isinstance(space, kind)), None)
    if kind is None:
        got = type(space).__name__
        raise ValueError(f"{path}: Minari has no form for the space {got}; it has {_WRITTEN}")
    if kind is spaces.Dict:
        values = {key: _describe(each, join(path, str(key))) for key, each in space.spaces.items()}
        return {"type": "Dict", "subspaces": values}
    if kind is spaces.Tuple:
        each = [_describe(each, join(path, str(index))) for index, each in enumerate(space.spaces)]
        return {"type": "Tuple", "subspaces": each}
    return {
        "type": kind.__name__,
        **{key: _plain(getattr(space, name)) for key, name in _ATTRIBUTES[kind].items()},
    }


def _plain(value: Any) -> Any:
    """Returns an attribute of a space as a value of JSON."""
    if isinstance(value, np.dtype):
        return str(value)
    if isinstance(value, np.ndarray):
        # A number in JSON is a float64, which holds the narrower floats exactly.
        return (value.astype(np.float64) if value.dtype.kind == "f" else value).tolist()
    if isinstance(value, np.integer):
        return int(value)
    return list(value) if isinstance(value, tuple) else value


def _build(data: dict[str, Any]) -> Space[Any]:
    match data["type"]:
        case "Box":
            low, high = (np.array(data[name], dtype=data["dtype"]) for name in ("low", "high"))
            return spaces.Box(low, high, tuple(data["shape"]), np.dtype(data["dtype"]))
        case "Discrete":
            kind = {} if data.get("dtype", "int64") == "int64" else {"dtype": data["dtype"]}
            return spaces.Discrete(data["n"], start=data.get("start", 0), **kind)
        case "MultiDiscrete":
            start = {"start": data["start"]} if "start" in data else {}
            return spaces.MultiDiscrete(data["nvec"], dtype=data.get("dtype", "int64"), **start)
        case "MultiBinary":
            return spaces.MultiBinary(data["n"])
        case "Dict":
            return spaces.Dict({key: _build(each) for key, each in data["subspaces"].items()})
        case "Tuple":
            return spaces.Tuple([_build(each) for each in data["subspaces"]])
        case "Text":
            return spaces.Text(data["max_length"], min_length=data["min_length"], charset=data["charset"])
        case kind:
            raise ValueError(f"expected one of the spaces {_WRITTEN}, got {kind!r}")
