"""`metadata.json` of a Minari dataset."""

# Rules: datasets K4

from __future__ import annotations

import json
import logging
import math
import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gymnasium import Space

from headrace.datasets.exporting.structure import Structure
from headrace.datasets.minari.env_spec import env_spec_from_json, spaces_of
from headrace.datasets.minari.recorded import damage_named
from headrace.datasets.minari.spaces import space_from_json
from headrace.errors import DatasetError

_logger = logging.getLogger(__name__)

METADATA_FILE = "metadata.json"
# Every 0.5.x reads this level; a later stamp would shut out the earlier ones.
MINARI_VERSION = "0.5.0"
FORMATS = ("hdf5", "arrow", "parquet")

# Keys of our own: the tree of the episodes, and how many of them have it (Minari may append others).
_STRUCTURE = "headrace_structure"
_OWN_EPISODES = "headrace_episodes"
_KNOWN_VERSION = re.compile(r"0\.[45]\.\d+")
_SPACES = ("observation_space", "action_space")


@dataclass(frozen=True, slots=True)
class Metadata:
    """The content of `metadata.json`.

    Attributes:
        file: where it was read.
        raw: all of it.
        data_format: "hdf5", "arrow" or "parquet".
        observation_space: None where neither it nor an environment that can be made here is named.
        action_space: as `observation_space`.
        structure: of the episodes that were written here; None if there are none.
        own_episodes: how many these are; they are the first.
        may_have_jpeg_infos: whether Minari wrote infos of images as JPEG: it did where it noted no `jpeg_encoding` yet.
    """

    file: Path
    raw: dict[str, Any]
    data_format: str
    observation_space: Space[Any] | None
    action_space: Space[Any] | None
    structure: Structure | None
    own_episodes: int
    may_have_jpeg_infos: bool


def of_dataset(dataset_id: str) -> dict[str, Any]:
    """The keys that every dataset written here has alike."""
    return {
        "dataset_id": dataset_id,
        "data_format": "hdf5",
        "minari_version": MINARI_VERSION,
        "jpeg_encoding": False,
    }


def own_metadata(structure: Structure, episodes: int) -> dict[str, Any]:
    """The keys from which `read_metadata` knows what was written here."""
    return {_STRUCTURE: structure.to_json(), _OWN_EPISODES: episodes}


def text_metadata(**values: Any) -> dict[str, str]:
    """The strings that were given, by key.

    Raises:
        TypeError: no string.

    >>> text_metadata(algorithm_name="DQN", description=None)
    {'algorithm_name': 'DQN'}
    """
    given = {name: value for name, value in values.items() if value is not None}
    for name, value in given.items():
        if not isinstance(value, str):
            raise TypeError(f"{name}: expected a str, got {type(value).__name__}")
    return given


def list_metadata(**values: Any) -> dict[str, list[str]]:
    """The lists of strings that were given, by key; one string is a list of one, and sets are sorted.

    Raises:
        TypeError: neither.

    >>> list_metadata(author={"B", "A"}, requirements="mujoco>=3")
    {'author': ['A', 'B'], 'requirements': ['mujoco>=3']}
    """
    return {name: _strings(name, value) for name, value in values.items() if value is not None}


def score_metadata(**values: Any) -> dict[str, float]:
    """The numbers that were given, by key.

    Raises:
        TypeError: no number.
        ValueError: infinite or NaN, which JSON does not have.
    """
    given = {name: value for name, value in values.items() if value is not None}
    for name, value in given.items():
        if not hasattr(value, "__float__") or isinstance(value, bool):
            raise TypeError(f"{name}: expected a number, got {type(value).__name__}")
        if not math.isfinite(value):
            raise ValueError(f"{name}: expected a finite number, got {value}")
    return {name: float(value) for name, value in given.items()}


def write_metadata(folder: Path, metadata: Mapping[str, Any]) -> None:
    """Write `metadata.json`, with the size of all files in MB as Minari counts it.

    Raises:
        ValueError: a value that cannot be written as JSON.
    """
    size = sum(path.stat().st_size for path in folder.iterdir())
    complete = {**metadata, "dataset_size": 0.0}
    # In ASCII, which every locale reads: Minari opens it in that of the reader.
    complete["dataset_size"] = round((size + len(json.dumps(complete))) / 1e6, 1)
    (folder / METADATA_FILE).write_text(json.dumps(complete, allow_nan=False), encoding="utf-8")


def read_metadata(folder: Path) -> Metadata:
    """Read `metadata.json`.

    Raises:
        DatasetError: it is missing, damaged, or lacks what no reader can do without; with the file and the key.

    Warns:
        UserWarning: a `minari_version` that is not known.
    """
    file = folder / METADATA_FILE
    if not file.is_file():
        raise DatasetError(f"{file}: there is no such file; is {folder} a Minari dataset?")
    with damage_named(file):
        raw = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(raw, dict):
        raise DatasetError(f"{file}: expected a JSON object, got {type(raw).__name__}")
    data_format = raw.get("data_format", "hdf5")
    if data_format not in FORMATS:
        raise DatasetError(f"{file}: data_format: expected one of {', '.join(FORMATS)}, got {data_format!r}")
    _warn_of_version(file, raw.get("minari_version"))
    observation_space, action_space = _read_spaces(file, raw)
    with damage_named(file, _STRUCTURE):
        structure = Structure.from_json(raw[_STRUCTURE]) if _STRUCTURE in raw else None
        own_episodes = int(raw.get(_OWN_EPISODES, 0))
    may_have_jpeg_infos = raw.get("jpeg_encoding") is None
    return Metadata(
        file, raw, data_format, observation_space, action_space, structure, own_episodes, may_have_jpeg_infos
    )


def _strings(name: str, value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    given = list(value) if isinstance(value, Iterable) else [value]
    if not all(isinstance(each, str) for each in given):
        raise TypeError(f"{name}: expected a str or a list of str, got {value!r:.80}")
    return sorted(given) if isinstance(value, set | frozenset) else given


def _warn_of_version(file: Path, version: Any) -> None:
    if not isinstance(version, str) or not _KNOWN_VERSION.fullmatch(version):
        warnings.warn(
            f"{file}: minari_version {version!r} is not known here; it is read as the layout of 0.5",
            stacklevel=5,
        )


def _read_spaces(file: Path, raw: Mapping[str, Any]) -> tuple[Space[Any] | None, Space[Any] | None]:
    """The spaces that are noted; where one is missing, that of the environment, as Minari does."""
    given: list[Space[Any] | None] = []
    for name in _SPACES:
        with damage_named(file, name):
            given.append(None if raw.get(name) is None else space_from_json(raw[name]))
    if None in given and raw.get("env_spec") is not None:
        with damage_named(file, "env_spec"):
            made = spaces_of(env_spec_from_json(raw["env_spec"], "env_spec")) or (None, None)
        given = [space if space is not None else other for space, other in zip(given, made, strict=True)]
    if None in given:
        _logger.info("%s names no spaces: trees are read as they lie in the file", file)
    return given[0], given[1]
