"""What a file of episodes says beside its arrays: the tree, each episode's length, seed, options and id, metadata."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.datasets.exporting.json_values import decode, encode
from headrace.datasets.exporting.structure import FREE_PARTS, Column, Structure
from headrace.errors import SpecError
from headrace.trajectories.episode import Episode

Array = np.ndarray[Any, Any]

VERSION = 1


class EpisodeFacts(NamedTuple):
    """One episode, beside its arrays.

    Attributes:
        length: its transitions.
        seed, options, id: as in `Episode`.
        rows: of each column.
        dtypes: of each column of strings.
    """

    length: int
    seed: int | None
    options: Any
    id: int | str | None
    rows: dict[str, int]
    dtypes: dict[str, np.dtype[Any]]


class Header:
    """Keeps the seeds, options and ids of episodes as they are written, and returns them when the episodes are read.

    Args:
        structure: that all episodes have.
        metadata: the user's.

    Attributes:
        lengths: of each episode, in transitions.

    >>> episode = Episode([0.0, 1.0], [1], [1.0], [True], [False], seed=7)
    >>> structure = Structure.of(episode)
    >>> header = Header(structure, {"author": "me"})
    >>> header.add(episode, structure.check(0, episode))
    >>> again = Header.from_json(header.to_json())
    >>> again.metadata, again.lengths, again.episode(0).seed
    ({'author': 'me'}, [1], 7)
    """

    def __init__(self, structure: Structure, metadata: Mapping[str, Any] | None = None) -> None:
        self.structure = structure
        self.metadata = dict(metadata or {})
        self.lengths: list[int] = []
        self._seeds: list[Any] = []
        self._options: list[Any] = []
        self._ids: list[Any] = []
        columns = structure.columns.values()
        # Of each info and extra: 1 where it has a row for the reset too. Of strings: the size of one in bytes.
        self._resets: dict[str, list[int]] = {each.path: [] for each in columns if each.part in FREE_PARTS}
        self._sizes: dict[str, list[int]] = {each.path: [] for each in columns if each.is_text}

    def add(self, episode: Episode, arrays: Mapping[str, Array]) -> None:
        """Note the next episode.

        Args:
            episode: any.
            arrays: what `Structure.check` gave for it.

        Raises:
            SpecError: a seed, options or an id that cannot be written as JSON; nothing is noted then.
        """
        where = f"episode {len(self.lengths)}: "
        seed, options = encode(episode.seed, f"{where}seed"), encode(episode.options, f"{where}options")
        name = encode(episode.id, f"{where}id")
        self.lengths.append(len(episode))
        self._seeds.append(seed)
        self._options.append(options)
        self._ids.append(name)
        for path, resets in self._resets.items():
            resets.append(len(arrays[path]) - len(episode))
        for path, sizes in self._sizes.items():
            sizes.append(arrays[path].dtype.itemsize)

    def episode(self, index: int) -> EpisodeFacts:
        """Returns the seed, options and id of one episode."""
        length = self.lengths[index]
        rows = {
            path: length + self._resets[path][index] if path in self._resets else column.rows(length)[0]
            for path, column in self.structure.columns.items()
        }
        dtypes = {
            path: _text_dtype(self.structure.columns[path], sizes[index])
            for path, sizes in self._sizes.items()
        }
        seed, options, name = (decode(each[index]) for each in (self._seeds, self._options, self._ids))
        return EpisodeFacts(length, seed, options, name, rows, dtypes)

    def offsets(self, column: Column) -> NDArray[np.int64]:
        """Where each episode's rows of a column begin when they stand one behind the other, and the total: [E + 1]."""
        rows = np.array(self.lengths, np.int64)
        if column.part in FREE_PARTS:
            rows += np.array(self._resets[column.path], np.int64)
        elif column.part == "observations":
            rows += 1
        return np.concatenate(([0], np.cumsum(rows)))

    def widest(self, column: Column) -> np.dtype[Any]:
        """The dtype that holds the column of every episode."""
        return _text_dtype(column, max(self._sizes[column.path])) if column.is_text else column.dtype

    def to_json(self) -> str:
        """All of it, with a checksum: a flipped digit of a seed must not be read as another seed."""
        data = {
            "format": "headrace episodes",
            "version": VERSION,
            "tree": self.structure.to_json(),
            "lengths": self.lengths,
            "seeds": _pack(self._seeds),
            "options": _pack(self._options),
            "ids": _pack(self._ids),
            "reset_rows": {path: _pack(each) for path, each in self._resets.items()},
            "text_bytes": {path: _pack(each) for path, each in self._sizes.items()},
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
                raise SpecError(
                    "expected the description of a dataset as it was written, but it was changed since"
                )
            if data["version"] != VERSION:
                raise SpecError(
                    f"expected version {VERSION} of the format, got {data['version']!r}; a newer headrace wrote it"
                )
            header = cls(Structure.from_json(data["tree"]), decode(data["metadata"]))
            header._read_episodes(data)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            if isinstance(error, SpecError):
                raise
            raise SpecError(
                f"expected the description of a dataset, got {text!r:.80} ({type(error).__name__}: {error})"
            ) from error
        return header

    def _read_episodes(self, data: dict[str, Any]) -> None:
        self.lengths = data["lengths"]
        if not self.lengths or any(type(each) is not int or each < 1 for each in self.lengths):
            raise SpecError(f"lengths: expected one or more integers above 0, got {self.lengths!r:.80}")
        count = len(self.lengths)
        self._seeds = _unpack(data["seeds"], count, "seeds")
        self._options = _unpack(data["options"], count, "options")
        self._ids = _unpack(data["ids"], count, "ids")
        self._resets = {path: _unpack(data["reset_rows"][path], count, path) for path in self._resets}
        self._sizes = {path: _unpack(data["text_bytes"][path], count, path) for path in self._sizes}
        for path, resets in self._resets.items():
            if not set(resets) <= {0, 1}:
                raise SpecError(f"reset_rows: {path}: expected 0 or 1, got {resets!r:.80}")
        for path, sizes in self._sizes.items():
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
    """A list, or its one value where all are equal: most datasets have no seed, no options and one width."""
    # By their text: to Python 1, 1.0 and True are equal, and so are 0.0 and -0.0.
    texts = {_dump(each) for each in values}
    return {"all": values[0]} if len(texts) == 1 else {"each": values}


def _unpack(data: Any, count: int, path: str) -> list[Any]:
    match data:
        case {"all": value}:
            return [value] * count
        case {"each": list(values)} if len(values) == count:
            return values
    raise SpecError(f"{path}: expected a value for each of {count} episodes, got {data!r:.80}")
