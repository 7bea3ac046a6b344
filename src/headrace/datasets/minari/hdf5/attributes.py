"""Seed, options and id of an episode as HDF5 attributes of its group.

Minari's own form is `seed`, and one attribute for each option, named by its path: `options/wind/speed`. An empty
mapping is an attribute without a value. HDF5 keeps variable-length strings without checksums, where damage can hang its
reader, and it forgets the width of string arrays. So the attribute `headrace`, JSON of a fixed length, has the strings
too, with the episode's id. They are read from there.
"""

# Rules: datasets K9

from __future__ import annotations

import json
import operator
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from headrace.datasets.exporting.structure import is_encodable
from headrace.datasets.hdf5 import h5py
from headrace.datasets.nesting import nested
from headrace.errors import SpecError
from headrace.trajectories.episode import Episode
from headrace.trees import MAX_DEPTH

_SEED = "seed"
_OPTIONS = "options"
_OWN = "headrace"
_INTEGERS = range(-(2**63), 2**64)


def episode_attributes(index: int, episode: Episode) -> dict[str, Any]:
    """Returns the attributes of an episode beside its number and length; None is left out.

    Raises:
        SpecError: no attribute can hold the seed, the id or an option; with the episode and the path.
    """
    where = f"episode {index}: "
    attributes: dict[str, Any] = {}
    own: dict[str, Any] = {}
    if episode.seed is not None:
        attributes[_SEED] = _integer(episode.seed, f"{where}seed")
    if episode.options is not None:
        if not isinstance(episode.options, Mapping):
            raise SpecError(f"{where}options: expected a mapping, got {type(episode.options).__name__}")
        attributes.update(_flatten(episode.options, _OPTIONS, where))
        texts = {name: _text_to_json(value) for name, value in attributes.items() if _is_text(value)}
        own = {"texts": texts} if texts else {}
    if episode.id is not None:
        is_text = isinstance(episode.id, str)
        own["id"] = episode.id if is_text else int(_integer(episode.id, f"{where}id"))
    if own:
        attributes[_OWN] = np.bytes_(json.dumps(own).encode())
    return attributes


def write_attributes(group: h5py.Group, attributes: Mapping[str, Any]) -> None:
    """Writes the result of `episode_attributes`."""
    for name, value in attributes.items():
        if _is_text(value):
            group.attrs.create(name, np.asarray(value, object), dtype=h5py.string_dtype())
        else:
            group.attrs[name] = value


def read_reset(group: h5py.Group) -> dict[str, Any]:
    """Reads the `seed`, `options` and `id` of an episode, as `hr.Episode` takes them.

    Raises:
        SpecError: attributes that contradict one another.
    """
    attributes = group.attrs
    own = json.loads(attributes[_OWN]) if _OWN in attributes else {}
    texts = own.get("texts", {})
    options = nested(
        {
            name: _text_from_json(texts[name]) if name in texts else _value_of(attributes[name])
            for name in attributes
            if name == _OPTIONS or name.startswith(f"{_OPTIONS}/")
        }
    ).get(_OPTIONS)
    if not (options is None or isinstance(options, dict)):
        raise SpecError(f"attribute {_OPTIONS!r}: expected a mapping, got {options!r:.80}")
    seed = int(attributes[_SEED]) if _SEED in attributes else None
    return {"seed": seed, "options": options, "id": own.get("id")}


def _flatten(options: Mapping[Any, Any], path: str, where: str) -> Iterator[tuple[str, Any]]:
    """Yields the path of each option with its value, as h5py takes it."""
    if path.count("/") > MAX_DEPTH:
        raise SpecError(
            f"{where}{path:.80}: expected at most {MAX_DEPTH} levels; do they contain themselves?"
        )
    if not options:
        yield path, h5py.Empty("u1")
    for key, value in options.items():
        if not isinstance(key, str) or not key or "/" in key:
            raise SpecError(
                f"{where}{path}: expected keys that are non-empty strings without '/', got {key!r}"
            )
        _check_text(key, f"{where}{path}")
        name = f"{path}/{key}"
        if isinstance(value, Mapping):
            yield from _flatten(value, name, where)
        else:
            yield name, _checked(value, where + name)


def _checked(value: Any, path: str) -> Any:
    """Returns a number, a string or an array of them, as h5py takes it."""
    if isinstance(value, str):
        _check_text(value, path)
        return str(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return _integer(value, path)
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise SpecError(f"{path}: expected an array, got a ragged {type(value).__name__}: {error}") from error
    if array.dtype.kind not in "biufcU":
        got = f"{type(value).__name__} of {array.dtype}"
        raise SpecError(f"{path}: expected numbers, booleans, strings or arrays of them, got {got}")
    if array.dtype.kind == "U":
        for text in array.ravel().tolist():
            _check_text(text, path)
    return str(array) if _is_text(array) and not array.ndim else array


def _check_text(text: str, path: str) -> None:
    if not is_encodable(text):
        raise SpecError(f"{path}: expected a string that can be written as UTF-8, got {text!r:.80}")
    if "\0" in text:
        raise SpecError(f"{path}: HDF5 ends a string at a NUL, and {text!r:.80} has one")


def _integer(value: Any, path: str) -> Any:
    try:
        number = operator.index(value)
    except TypeError as error:
        raise SpecError(f"{path}: expected an integer, got {type(value).__name__}") from error
    if number not in _INTEGERS:
        raise SpecError(f"{path}: expected an integer from -2**63 to 2**64-1, got {number}")
    return np.int64(number) if number < 2**63 else np.uint64(number)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, np.ndarray) and value.dtype.kind == "U")


def _text_to_json(value: Any) -> Any:
    if isinstance(value, str):
        return value
    return {"dtype": value.dtype.str, "shape": value.shape, "texts": value.ravel().tolist()}


def _text_from_json(data: Any) -> Any:
    if isinstance(data, str):
        return data
    return np.array(data["texts"], data["dtype"]).reshape(data["shape"])


def _value_of(value: Any) -> Any:
    """Returns a value that h5py read: strings as str, numbers as Python's own where these are the same."""
    if isinstance(value, h5py.Empty):
        return {}
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, np.ndarray) and value.dtype.kind in "OS":
        texts = [text.decode() if isinstance(text, bytes) else text for text in value.ravel().tolist()]
        return np.array(texts, "U").reshape(value.shape)
    if isinstance(value, np.bool_ | np.int64 | np.uint64 | np.float64):
        return value.item()
    return value
