"""`metadata.json` of a Minari dataset."""

# Rules: datasets K4

from __future__ import annotations

import json
import logging
import math
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gymnasium import Space

from headrace.datasets.errors import dataset_errors
from headrace.datasets.exporting.structure import Structure
from headrace.datasets.minari.env_spec import env_spec_from_json, spaces_of
from headrace.datasets.minari.spaces import space_from_json
from headrace.errors import DatasetError

_logger = logging.getLogger(__name__)

METADATA_FILE = "metadata.json"
# Every 0.5.x reads this level; the earlier ones refuse a later level.
MINARI_VERSION = "0.5.0"
FORMATS = ("hdf5", "arrow", "parquet")

# Headrace's own keys: the tree of the episodes, and the number of episodes that have it (Minari may append others).
_STRUCTURE = "headrace_structure"
_OWN_EPISODES = "headrace_episodes"
_KNOWN_VERSION = re.compile(r"0\.[45]\.\d+")
_SPACES = ("observation_space", "action_space")


@dataclass(frozen=True, slots=True)
class Metadata:
    """Content of `metadata.json`.

    Attributes:
        file: path of the file.
        raw: all keys and values.
        data_format: "hdf5", "arrow" or "parquet".
        observation_space: None where the file has neither a space nor an environment that can be made here.
        action_space: as `observation_space`.
        structure: of the episodes that `save_minari` wrote; None if there are none.
        own_episodes: number of these episodes; they are the first.
        may_have_jpeg_infos: whether Minari may have stored infos of images as JPEG, as it did before it wrote the key
            `jpeg_encoding`.
    """

    file: Path
    raw: dict[str, Any]
    data_format: str
    observation_space: Space[Any] | None
    action_space: Space[Any] | None
    structure: Structure | None
    own_episodes: int
    may_have_jpeg_infos: bool


def new_metadata(dataset_id: str, structure: Structure, total_episodes: int) -> dict[str, Any]:
    """Returns the keys from which `read_metadata` recognises the episodes of `save_minari`, and the fixed ones."""
    return {
        "dataset_id": dataset_id,
        "data_format": "hdf5",
        "minari_version": MINARI_VERSION,
        "jpeg_encoding": False,
        "total_episodes": total_episodes,
        _STRUCTURE: structure.to_json(),
        _OWN_EPISODES: total_episodes,
    }


def described(**values: Any) -> dict[str, Any]:
    """Returns the descriptions that were given, in the form of the file; None is left out.

    One string in place of a list becomes a list of one, and a set is sorted.

    Raises:
        TypeError: not a string, a list of strings or a number, where the key needs one.
        ValueError: an infinite score or NaN, which JSON does not have.

    >>> described(author={"B", "A"}, requirements="mujoco>=3", description=None, ref_max_score=1)
    {'author': ['A', 'B'], 'requirements': ['mujoco>=3'], 'ref_max_score': 1.0}
    """
    return {name: _VALUES[name](name, value) for name, value in values.items() if value is not None}


def write_metadata(folder: Path, metadata: Mapping[str, Any]) -> None:
    """Writes `metadata.json`, with the size of all files in MB as Minari counts it.

    Raises:
        ValueError: JSON cannot hold a value.
    """
    size = sum(path.stat().st_size for path in folder.iterdir())
    complete = {**metadata, "dataset_size": 0.0}
    # The text is ASCII, because Minari opens the file in the encoding of the reader's locale.
    complete["dataset_size"] = round((size + len(json.dumps(complete))) / 1e6, 1)
    (folder / METADATA_FILE).write_text(json.dumps(complete, allow_nan=False), encoding="utf-8")


def read_metadata(folder: Path) -> Metadata:
    """Reads `metadata.json`.

    Raises:
        DatasetError: the file is missing, damaged, or lacks a required key; with the file and the key.

    Warns:
        UserWarning: a `minari_version` that is not known.
    """
    file = folder / METADATA_FILE
    if not file.is_file():
        raise DatasetError(f"{file}: there is no such file; is {folder} a Minari dataset?")
    with dataset_errors(file):
        raw = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(raw, dict):
        raise DatasetError(f"{file}: expected a JSON object, got {type(raw).__name__}")
    data_format = raw.get("data_format", "hdf5")
    if data_format not in FORMATS:
        raise DatasetError(f"{file}: data_format: expected one of {', '.join(FORMATS)}, got {data_format!r}")
    version = raw.get("minari_version")
    if not isinstance(version, str) or not _KNOWN_VERSION.fullmatch(version):
        message = f"{file}: minari_version {version!r} is not known here; it is read as the layout of 0.5"
        warnings.warn(message, stacklevel=4)
    with dataset_errors(file, _STRUCTURE):
        structure = Structure.from_json(raw[_STRUCTURE]) if _STRUCTURE in raw else None
        own_episodes = int(raw.get(_OWN_EPISODES, 0))
    observation_space, action_space = _read_spaces(file, raw)
    may_have_jpeg_infos = raw.get("jpeg_encoding") is None
    return Metadata(
        file, raw, data_format, observation_space, action_space, structure, own_episodes, may_have_jpeg_infos
    )


def _read_spaces(file: Path, raw: Mapping[str, Any]) -> list[Space[Any] | None]:
    """Returns the spaces in the file; where one is missing, that of the environment, as Minari does."""
    found: list[Space[Any] | None] = []
    for name in _SPACES:
        with dataset_errors(file, name):
            found.append(None if raw.get(name) is None else space_from_json(raw[name]))
    if None in found and raw.get("env_spec") is not None:
        with dataset_errors(file, "env_spec"):
            made = spaces_of(env_spec_from_json(raw["env_spec"], "env_spec")) or (None, None)
        found = [space if space is not None else other for space, other in zip(found, made, strict=True)]
    if None in found:
        _logger.info("%s names no spaces: the containers of the file are taken", file)
    return found


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name}: expected a str, got {type(value).__name__}")
    return value


def _list(name: str, value: Any) -> list[str]:
    given = list(value) if isinstance(value, Iterable) and not isinstance(value, str) else [value]
    if not all(isinstance(each, str) for each in given):
        raise TypeError(f"{name}: expected a str or a list of str, got {value!r:.80}")
    return sorted(given) if isinstance(value, set | frozenset) else given


def _score(name: str, value: Any) -> float:
    if not hasattr(value, "__float__") or isinstance(value, bool):
        raise TypeError(f"{name}: expected a number, got {type(value).__name__}")
    if not math.isfinite(value):
        raise ValueError(f"{name}: expected a finite number, got {value}")
    return float(value)


_VALUES: dict[str, Callable[[str, Any], Any]] = {
    **dict.fromkeys(("algorithm_name", "code_permalink", "description"), _text),
    **dict.fromkeys(("author", "author_email", "requirements"), _list),
    **dict.fromkeys(("ref_min_score", "ref_max_score"), _score),
}
