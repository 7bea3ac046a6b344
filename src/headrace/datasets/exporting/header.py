"""Header of a file of episodes: the tree, each episode's length, seed, options and id, and the user's metadata."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.datasets.exporting.json_values import decode, encode
from headrace.datasets.exporting.structure import FREE_PARTS, Array, Column, Structure
from headrace.errors import SpecError
from headrace.trajectories.episode import Episode

VERSION = 1

_RESET = ("seed", "options", "id")


class EpisodeFacts(NamedTuple):
    """Facts of one episode.

    Attributes:
        length: number of transitions.
        reset: `seed`, `options` and `id`, as `Episode` takes them.
        rows: number of rows of each column.
        dtypes: dtype of each column of strings.
    """

    length: int
    reset: dict[str, Any]
    rows: dict[str, int]
    dtypes: dict[str, np.dtype[Any]]


def check_metadata(metadata: Any) -> None:
    """Refuses metadata that a header cannot hold, before any file is touched.

    Raises:
        TypeError: not a mapping.
        SpecError: a value that JSON cannot hold; with its path.
    """
    if not (metadata is None or isinstance(metadata, Mapping)):
        raise TypeError(f"metadata: expected a mapping, got {type(metadata).__name__}")
    encode(dict(metadata or {}), "metadata")


class Header:
    """Description of a file of episodes, which grows while they are written.

    Args:
        structure: of all episodes.
        metadata: of the user.

    Attributes:
        lengths: number of transitions of each episode.

    >>> episode = Episode([0.0, 1.0], [1], [1.0], [True], [False], seed=7)
    >>> structure = Structure.of(episode)
    >>> header = Header(structure, {"author": "me"})
    >>> header.add(episode, structure.check(0, episode))
    >>> again = Header.from_json(header.to_json())
    >>> again.metadata, again.lengths, again.episode(0).reset["seed"]
    ({'author': 'me'}, [1], 7)
    """

    def __init__(self, structure: Structure, metadata: Mapping[str, Any] | None = None) -> None:
        self.structure = structure
        self.metadata = dict(metadata or {})
        self.lengths: list[int] = []
        self._reset: dict[str, list[Any]] = {name: [] for name in _RESET}
        columns = structure.columns.values()
        # Of each info and extra: 1 where it has a row for the reset. Of strings: the size of one in bytes.
        self._reset_rows: dict[str, list[int]] = {
            each.path: [] for each in columns if each.part in FREE_PARTS
        }
        self._text_bytes: dict[str, list[int]] = {each.path: [] for each in columns if each.is_text}

    def add(self, episode: Episode, arrays: Mapping[str, Array]) -> None:
        """Adds the next episode.

        Args:
            episode: of the structure.
            arrays: result of `Structure.check` for it.

        Raises:
            SpecError: a seed, options or an id that JSON cannot hold; then nothing is added.
        """
        where = f"episode {len(self.lengths)}: "
        encoded = {name: encode(getattr(episode, name), f"{where}{name}") for name in _RESET}
        for name, value in encoded.items():
            self._reset[name].append(value)
        for path, reset_rows in self._reset_rows.items():
            reset_rows.append(len(arrays[path]) - len(episode))
        for path, sizes in self._text_bytes.items():
            sizes.append(arrays[path].dtype.itemsize)
        self.lengths.append(len(episode))

    def episode(self, index: int) -> EpisodeFacts:
        """Returns the facts of one episode."""
        length, columns = self.lengths[index], self.structure.columns
        rows = {path: length + (column.part == "observations") for path, column in columns.items()}
        for path, reset_rows in self._reset_rows.items():
            rows[path] += reset_rows[index]
        dtypes = {path: _text_dtype(columns[path], sizes[index]) for path, sizes in self._text_bytes.items()}
        reset = {name: decode(values[index]) for name, values in self._reset.items()}
        return EpisodeFacts(length, reset, rows, dtypes)

    def offsets(self, column: Column) -> NDArray[np.int64]:
        """Returns the first row of each episode in a concatenated column, and the number of rows: [E + 1]."""
        more = self._reset_rows.get(column.path, int(column.part == "observations"))
        rows = np.array(self.lengths, np.int64) + np.array(more, np.int64)
        return np.concatenate(([0], np.cumsum(rows)))

    def widest(self, column: Column) -> np.dtype[Any]:
        """Returns the dtype that holds the column of every episode."""
        return _text_dtype(column, max(self._text_bytes[column.path])) if column.is_text else column.dtype

    def to_json(self) -> str:
        """Returns the header with a checksum, so that a damaged seed is not read as another seed."""
        data = {
            "format": "headrace episodes",
            "version": VERSION,
            "tree": self.structure.to_json(),
            "lengths": self.lengths,
            "seeds": _pack(self._reset["seed"]),
            "options": _pack(self._reset["options"]),
            "ids": _pack(self._reset["id"]),
            "reset_rows": {path: _pack(each) for path, each in self._reset_rows.items()},
            "text_bytes": {path: _pack(each) for path, each in self._text_bytes.items()},
            "metadata": encode(self.metadata, "metadata"),
        }
        return _dump({**data, "crc32": zlib.crc32(_dump(data).encode())})

    @classmethod
    def from_json(cls, text: str) -> Header:
        """Reads the text that `to_json` wrote.

        Raises:
            SpecError: anything else.
        """
        try:
            data = json.loads(text)
            checksum = data.pop("crc32")
            if checksum != zlib.crc32(_dump(data).encode()):
                raise SpecError("expected the description of a dataset as it was written, got a changed one")
            if data["version"] != VERSION:
                raise SpecError(
                    f"expected version {VERSION} of the format, got {data['version']!r}; a newer headrace wrote it"
                )
            header = cls(Structure.from_json(data["tree"]), decode(data["metadata"]))
            header._read_episodes(data)
        except SpecError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise SpecError(
                f"expected the description of a dataset, got {text!r:.80} ({type(error).__name__}: {error})"
            ) from error
        return header

    def _read_episodes(self, data: dict[str, Any]) -> None:
        self.lengths = data["lengths"]
        if not self.lengths or any(type(each) is not int or each < 1 for each in self.lengths):
            raise SpecError(f"lengths: expected one or more integers above 0, got {self.lengths!r:.80}")
        count = len(self.lengths)
        self._reset = {
            name: _unpack(data[key], count, key)
            for name, key in zip(_RESET, ("seeds", "options", "ids"), strict=True)
        }
        self._reset_rows = {path: _unpack(data["reset_rows"][path], count, path) for path in self._reset_rows}
        self._text_bytes = {path: _unpack(data["text_bytes"][path], count, path) for path in self._text_bytes}
        for path, reset_rows in self._reset_rows.items():
            if not set(reset_rows) <= {0, 1}:
                raise SpecError(f"reset_rows: {path}: expected 0 or 1, got {reset_rows!r:.80}")
        for path, sizes in self._text_bytes.items():
            unit = _unit(self.structure.columns[path])
            if any(type(size) is not int or size < 0 or size % unit for size in sizes):
                raise SpecError(f"text_bytes: {path}: expected sizes in bytes, got {sizes!r:.80}")


def _dump(data: Any) -> str:
    return json.dumps(data, allow_nan=False, separators=(",", ":"))


def _unit(column: Column) -> int:
    return 4 if column.dtype.kind == "U" else 1


def _text_dtype(column: Column, size: int) -> np.dtype[Any]:
    return np.dtype(f"{column.dtype.str[:2]}{size // _unit(column)}")


def _pack(values: list[Any]) -> Any:
    """Returns a list, or its one value where all are equal: most datasets have no seed, no options and one width."""
    # Texts are compared, because 1, 1.0 and True are equal in Python, and so are 0.0 and -0.0.
    texts = {_dump(each) for each in values}
    return {"all": values[0]} if len(texts) == 1 else {"each": values}


def _unpack(data: Any, count: int, path: str) -> list[Any]:
    match data:
        case {"all": value}:
            return [value] * count
        case {"each": list(values)} if len(values) == count:
            return values
    raise SpecError(f"{path}: expected a value for each of {count} episodes, got {data!r:.80}")
