"""Gymnasium spaces as Minari's JSON, and back.

The form is that of `minari/serialization.py` of Minari 0.5: infinite bounds are the tokens `Infinity` and `-Infinity`.
"""

# Rules: datasets K7

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from headrace.trees import join

_WRITTEN = "Box, Discrete, MultiDiscrete, MultiBinary, Dict, Tuple, Text"


def space_to_json(space: Space[Any], path: str) -> str:
    """The space as Minari writes it.

    Args:
        space: of the seven kinds that Minari has a form for, or of kinds derived from them.
        path: what to call it in errors.

    Raises:
        ValueError: another space; with its path.

    >>> space_to_json(spaces.Box(-np.inf, np.inf, (1,)), "observation_space")
    '{"type": "Box", "dtype": "float32", "shape": [1], "low": [-Infinity], "high": [Infinity]}'
    """
    return json.dumps(_describe(space, path))


def unbounded(space: Any) -> Any:
    """The same structure, shapes and dtypes, and each box as wide as its dtype; None stays None.

    >>> unbounded(spaces.Dict({"a": spaces.Box(0, 1, (2,)), "b": spaces.Discrete(3)}))
    Dict('a': Box(-inf, inf, (2,), float32), 'b': Discrete(3))
    """
    if isinstance(space, spaces.Dict):
        return spaces.Dict({name: unbounded(child) for name, child in space.spaces.items()})
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([unbounded(child) for child in space.spaces])
    if not isinstance(space, spaces.Box):
        return space
    if space.dtype.kind == "f":
        return spaces.Box(-np.inf, np.inf, space.shape, space.dtype.type)
    limits = np.iinfo(space.dtype)
    return spaces.Box(int(limits.min), int(limits.max), space.shape, space.dtype.type)


def space_from_json(text: Any) -> Space[Any]:
    """The space that `space_to_json`, or Minari, wrote.

    Raises:
        ValueError: no description of a space.

    >>> space_from_json('{"type": "Discrete", "dtype": "int64", "start": 1, "n": 3}')
    Discrete(3, start=1)
    """
    try:
        return _build(json.loads(text) if isinstance(text, str) else text)
    except (KeyError, TypeError, AttributeError, AssertionError, RecursionError, OverflowError) as error:
        raise ValueError(f"expected a space as Minari describes it: {error!r}") from error


def _describe(space: Any, path: str) -> dict[str, Any]:
    for kind, describe in _DESCRIBE.items():
        if isinstance(space, kind):
            return {"type": kind.__name__, **describe(space, path)}
    got = type(space).__name__
    raise ValueError(f"{path}: Minari has no form for the space {got}; it has {_WRITTEN}")


def _describe_box(space: spaces.Box[Any], _: str) -> dict[str, Any]:
    low, high = (_numbers(bound) for bound in (space.low, space.high))
    return {"dtype": str(space.dtype), "shape": list(space.shape), "low": low, "high": high}


def _describe_discrete(space: spaces.Discrete[Any], _: str) -> dict[str, Any]:
    return {"dtype": str(space.dtype), "start": int(space.start), "n": int(space.n)}


def _describe_multi_discrete(space: spaces.MultiDiscrete[Any], _: str) -> dict[str, Any]:
    return {"dtype": str(space.dtype), "nvec": space.nvec.tolist(), "start": space.start.tolist()}


def _describe_multi_binary(space: spaces.MultiBinary, _: str) -> dict[str, Any]:
    return {"n": space.n if isinstance(space.n, int) else list(space.n)}


def _describe_dict(space: spaces.Dict, path: str) -> dict[str, Any]:
    return {"subspaces": {key: _describe(each, join(path, str(key))) for key, each in space.spaces.items()}}


def _describe_tuple(space: spaces.Tuple[Any], path: str) -> dict[str, Any]:
    return {"subspaces": [_describe(each, join(path, str(index))) for index, each in enumerate(space.spaces)]}


def _describe_text(space: spaces.Text, _: str) -> dict[str, Any]:
    return {"max_length": space.max_length, "min_length": space.min_length, "charset": space.characters}


def _numbers(bound: Any) -> Any:
    # JSON knows no float but Python's; the narrower ones go into it exactly.
    return (bound.astype(np.float64) if bound.dtype.kind == "f" else bound).tolist()


_DESCRIBE: dict[type[Space[Any]], Callable[[Any, str], dict[str, Any]]] = {
    spaces.Box: _describe_box,
    spaces.Discrete: _describe_discrete,
    spaces.MultiDiscrete: _describe_multi_discrete,
    spaces.MultiBinary: _describe_multi_binary,
    spaces.Dict: _describe_dict,
    spaces.Tuple: _describe_tuple,
    spaces.Text: _describe_text,
}


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
            lengths = {"min_length": data["min_length"], "charset": data["charset"]}
            return spaces.Text(data["max_length"], **lengths)
        case kind:
            raise ValueError(f"expected one of the spaces {_WRITTEN}, got {kind!r}")
