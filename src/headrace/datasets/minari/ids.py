"""Ids of Minari datasets, and their folders."""

# Rules: datasets K1, K2

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from headrace.datasets.exporting.atomic import whole_folder
from headrace.errors import DatasetError

DATA_FOLDER = "data"
ROOT_VARIABLE = "MINARI_DATASETS_PATH"

_PART = re.compile(r"[-\w]+")
_NAME = re.compile(r"[-\w]+-v[0-9]+")
_FOREIGN = re.compile(r"[^-\w]+")
_LEAST_NAMESPACE = 2
_FORM = "letters, digits, '_' and '-', with namespaces before '/' and an integer version: 'name-v0'"


def check_id(dataset_id: str) -> str:
    """Returns the id if it is `name-vN` or `namespace/name-vN` (namespaces may nest).

    Raises:
        TypeError: not a string.
        ValueError: another form; the message shows a correct one.

    >>> check_id("demo/line-v0")
    'demo/line-v0'
    """
    if not isinstance(dataset_id, str):
        raise TypeError(f"dataset_id: expected a str such as 'name-v0', got {type(dataset_id).__name__}")
    *namespaces, name = dataset_id.split("/")
    if all(map(_is_namespace, namespaces)) and _NAME.fullmatch(name):
        return dataset_id
    correct = "/".join([*map(_corrected_namespace, filter(None, namespaces)), _corrected_name(name)])
    if f"{dataset_id}-v0" == correct:
        raise ValueError(f"dataset id {dataset_id!r} has no version; write {correct!r}")
    raise ValueError(f"dataset id {dataset_id!r}: expected {_FORM}; write {correct!r}")


def _is_namespace(part: str) -> bool:
    return len(part) >= _LEAST_NAMESPACE and _PART.fullmatch(part) is not None


def _corrected_namespace(part: str) -> str:
    return _FOREIGN.sub("_", part.strip()).ljust(_LEAST_NAMESPACE, "_")


def _corrected_name(name: str) -> str:
    word = _FOREIGN.sub("_", name.strip())
    return word if _NAME.fullmatch(word) else f"{word.rstrip('-') or 'name'}-v0"


def datasets_root(root: str | os.PathLike[str] | None) -> Path:
    """Returns the folder of all datasets: the argument, else `$MINARI_DATASETS_PATH`, else `~/.minari/datasets`."""
    if root is not None:
        return Path(root)
    from_environment = os.environ.get(ROOT_VARIABLE)
    return Path(from_environment) if from_environment else Path.home() / ".minari" / "datasets"


def namespace_folders(root: Path, dataset_id: str) -> list[Path]:
    """Returns the folder of each namespace of a dataset, outermost first."""
    parts = dataset_id.split("/")[:-1]
    return [root.joinpath(*parts[: count + 1]) for count in range(len(parts))]


def find_data_folder(dataset: str | os.PathLike[str], root: str | os.PathLike[str] | None) -> Path:
    """Returns the `data` folder of a dataset, from its id, or the path of its folder or of its `data`.

    Raises:
        TypeError: neither a string nor a path.
        FileNotFoundError: there is no such dataset; with the full path, and similar ids in the root.
        DatasetError: the path is a file.
    """
    named = os.fspath(dataset)
    if not isinstance(named, str):
        raise TypeError(f"dataset: expected an id or a path as str, got {type(named).__name__}")
    folder = datasets_root(root)
    candidates = [Path(named)] if isinstance(dataset, os.PathLike) else [folder / named, Path(named)]
    for candidate in candidates:
        found = whole_folder(candidate) / DATA_FOLDER
        if found.is_dir():
            return found
        if candidate.name == DATA_FOLDER and candidate.is_dir():
            return candidate
        if candidate.is_file():
            raise DatasetError(f"{candidate}: expected the folder of a Minari dataset, got a file")
    looked_for = os.path.abspath(candidates[0])
    if candidates[0].exists():
        raise FileNotFoundError(f"no Minari dataset at {looked_for}: it has no folder {DATA_FOLDER!r}")
    similar = difflib.get_close_matches(named, list_ids(folder), n=3, cutoff=0.5)
    hint = f"; similar ids there: {', '.join(similar)}" if similar else ""
    raise FileNotFoundError(f"no Minari dataset at {looked_for}{hint}")


def list_ids(root: Path) -> list[str]:
    """Returns the ids of the datasets below `root`, sorted.

    >>> list_ids(Path("/no/such/place"))
    []
    """
    return sorted(_ids_below(root, ""))


def _ids_below(folder: Path, prefix: str) -> Iterator[str]:
    try:
        entries = [entry for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith(".")]
    except OSError:  # The folder does not exist or may not be read.
        return
    for entry in entries:
        if os.path.isdir(os.path.join(entry.path, DATA_FOLDER)):
            yield prefix + entry.name
        else:
            yield from _ids_below(Path(entry.path), f"{prefix}{entry.name}/")
