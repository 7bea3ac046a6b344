"""What an episode was reset with, as HDF5 attributes of its group (datasets K9).

Minari's own form: `seed`, and one attribute for each option, named by its path: `options/wind/speed`. What that form
cannot say stands beside it: an empty mapping is an attribute without a value, and `headrace_dtypes` has the dtypes of
arrays of strings, which HDF5 gives back without their width.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from headrace.datasets.minari_h5py import h5py
from headrace.errors import SpecError
from headrace.trajectories.episode import Episode
from headrace.trees import MAX_DEPTH

_OPTIONS = "options"
_DTYPES = "headrace_dtypes"
_ID = "headrace_id"
_SEEDS = range(-(2**63), 2**64)


def episode_attributes(index: int, episode: Episode) -> dict[str, Any]:
    """The attributes of an episode beside its number and length; what is None is absent.

    Raises:
        SpecError: a seed or an option that no attribute holds; with the episode and the path.
    """
    attributes: dict[str, Any] = {}
    where = f"episode {index}: "
    if episode.seed is not None:
        attributes["seed"] = _whole(episode.seed, f"{where}seed")
    if episode.id is not None:
        attributes[_ID] = _value(episode.id, f"{where}id")
    if episode.options is not None:
        _check_mapping(episode.options, f"{where}{_OPTIONS}")
        attributes.update(_flatten(episode.options, _OPTIONS, where))
        dtypes = {name: value.dtype.str for name, value in attributes.items() if _is_texts(value)}
        if dtypes:
            attributes[_DTYPES] = json.dumps(dtypes)
    return attributes


def write_attributes(group: h5py.Group, attributes: Mapping[str, Any]) -> None:
    """Write what `episode_attributes` gave."""
    for name, value in attributes.items():
        if _is_texts(value):
            group.attrs.create(name, value.astype(object), dtype=h5py.string_dtype())
        else:
            group.attrs[name] = value


def read_reset(group: h5py.Group) -> dict[str, Any]:
    """The `seed`, `options` and `id` of an episode, as `hr.Episode` takes them.

    Raises:
        ValueError: attributes that contradict one another.
    """
    found = dict(group.attrs.items())
    dtypes = json.loads(found.get(_DTYPES, "{}"))
    seed = found.get("seed")
    return {
        "seed": None if seed is None else int(seed),
        "options": _unflatten(
            {
                name: _restored(value, dtypes.get(name))
                for name, value in found.items()
                if name == _OPTIONS or name.startswith(f"{_OPTIONS}/")
            }
        ),
        "id": _restored(found.get(_ID), None),
    }


def _flatten(options: Mapping[Any, Any], path: str, where: str) -> Iterator[tuple[str, Any]]:
    if path.count("/") > MAX_DEPTH:
        raise SpecError(
            f"{where}{path:.80}: expected at most {MAX_DEPTH} levels; do the options contain themselves?"
        )
    if not options:
        yield path, h5py.Empty("u1")
    for key, value in options.items():
        if not isinstance(key, str) or not key or "/" in key or "\0" in key:
            raise SpecError(
                f"{where}{path}: expected keys that are non-empty strings without '/', got {key!r}"
            )
        name = f"{path}/{key}"
        if isinstance(value, Mapping):
            yield from _flatten(value, name, where)
        else:
            yield name, _value(value, where + name)


def _check_mapping(options: Any, path: str) -> None:
    if not isinstance(options, Mapping):
        raise SpecError(f"{path}: expected a mapping, got {type(options).__name__}")


def _value(value: Any, path: str) -> Any:
    """A number, a string or an array of them, as h5py takes it."""
    if isinstance(value, str):
        return _text(value, path)
    if isinstance(value, int) and not isinstance(value, bool):
        return _whole(value, path)
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise SpecError(f"{path}: expected an array, got a ragged {type(value).__name__}: {error}") from error
    if array.dtype.kind not in "biufcU":
        raise SpecError(f"{path}: expected numbers, strings or arrays of them, got {type(value).__name__}")
    if array.dtype.kind == "U":
        if array.ndim == 0:
            return _text(str(array), path)
        for text in array.ravel().tolist():
            _text(text, path)
    return array


def _text(value: str, path: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise SpecError(f"{path}: expected a string that can be written as UTF-8: {error}") from error
    if "\0" in value:
        raise SpecError(f"{path}: HDF5 ends a string at a NUL, and {value!r:.80} has one")
    return value


def _whole(value: Any, path: str) -> Any:
    try:
        number = operator.index(value)
    except TypeError as error:
        raise SpecError(f"{path}: expected an integer, got {type(value).__name__}") from error
    if number not in _SEEDS:
        raise SpecError(f"{path}: expected an integer from -2**63 to 2**64-1, got {number}")
    return np.int64(number) if number < 2**63 else np.uint64(number)


def _is_texts(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "U" and value.ndim > 0


def _restored(value: Any, dtype: str | None) -> Any:
    """A Python number or string where HDF5 gives the scalar of the same dtype; strings as str."""
    if isinstance(value, h5py.Empty):
        return {}
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, np.ndarray) and value.dtype.kind in "OS":
        texts = [text.decode() if isinstance(text, bytes) else text for text in value.ravel().tolist()]
        return np.array(texts, dtype or "U").reshape(value.shape)
    if isinstance(value, np.bool_ | np.int64 | np.uint64 | np.float64):
        return value.item()
    return value


def _unflatten(values: Mapping[str, Any]) -> dict[str, Any] | None:
    if not values:
        return None
    root: dict[str, Any] = {}
    for name, value in values.items():
        *folders, last = name.split("/")
        place = root
        for folder in folders:
            place = place.setdefault(folder, {})
            if not isinstance(place, dict):
                raise ValueError(f"attribute {name!r}: there is one of the name {folder!r} too")
        place[last] = value
    options = root[_OPTIONS]
    if not isinstance(options, dict):
        raise ValueError(f"attribute {_OPTIONS!r}: expected a mapping, got {options!r:.80}")
    return options
