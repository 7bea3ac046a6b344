"""The keys of new items."""

from __future__ import annotations

import ctypes
import sys
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headrace.replay.lifetime import Lifetime
from headrace.tables.distribution import SkippedKeys

_BOUND = 1 << 64


class KeyFile(Protocol):
    """The files of a store on disk that hold which keys were used, which may have been, and which were skipped.

    Attributes:
        key_now: int64[1], the key of the next item.
        next_key: no key from here on may have been used.
    """

    key_now: NDArray[np.int64]
    next_key: int

    def set_keys_aside(self, next_key: int) -> int:
        """Notes that keys beyond `next_key` will be used; returns the first that may not."""

    def read_skipped(self) -> SkippedKeys:
        """Returns the ranges of keys that no item was given."""

    def write_skipped(self, skipped: SkippedKeys) -> None:
        """Replaces these ranges."""


class ItemKeys:
    """Gives each item of a replay a key that was never used. The replay's lock is held throughout.

    Args:
        lifetime: of the replay.

    Attributes:
        next: the key of the next item.
        skipped: ranges of keys that no item was given.

    >>> keys = ItemKeys(Lifetime())
    >>> keys.take(3), keys.take(1), keys.next
    (1, 4, 5)
    """

    next: int

    def __init__(self, lifetime: Lifetime) -> None:
        self._lifetime = lifetime
        self.next = 1
        # Keys below this one can be given without a call.
        self._set_aside = sys.maxsize
        self.skipped: SkippedKeys = ()

    def take(self, count: int) -> int:
        """Returns the first of `count` new keys.

        Raises:
            Closed: the replay is closed; no item is made.
        """
        first = self.next
        if self._lifetime.is_closed or first + count > self._set_aside:
            self._extend(count)
        self.next = first + count
        return first

    def ahead(self, most: int) -> int:
        """Returns the first of `most` new keys without taking them: the caller moves `next` on; see `take`."""
        if self._lifetime.is_closed or self.next + most > self._set_aside:
            self._extend(most)
        return self.next

    def skip_to(self, key: int) -> None:
        """Leaves out the keys below `key`: another process may have made them.

        >>> keys = ItemKeys(Lifetime())
        >>> keys.skip_to(10)
        >>> keys.take(1), keys.skipped
        (10, ((1, 10),))
        """
        if key > self.next:
            self.skipped = (*self.skipped, (self.next, key))
            self.next = key

    def _extend(self, count: int) -> None:  # noqa: ARG002 - a store needs it
        self._lifetime.check_open()


class StoredKeys(ItemKeys, ctypes.Structure):
    """Keys of a store on disk: `next` lies in its file, so that it is right after a kill.

    A field of ctypes is set without a call of Python, after which Ctrl-C could come (`Intake.commit`).
    """

    _fields_ = (("next", ctypes.c_int64),)
    _file: KeyFile

    @classmethod
    def of(cls, lifetime: Lifetime, file: KeyFile) -> StoredKeys:
        """Returns the keys of a replay that goes on with a store.

        Args:
            lifetime: of the replay.
            file: of the store.
        """
        keys = cls.from_buffer(file.key_now.data)
        keys._lifetime = lifetime
        keys._file = file
        # The file notes that keys below this one may have been used.
        keys._set_aside = file.next_key
        keys.skipped = file.read_skipped()
        return keys

    def skip_to(self, key: int) -> None:
        """See `ItemKeys.skip_to`. A kill at any moment leaves a store that can be opened."""
        if key > self.next:
            self._set_aside = self._file.set_keys_aside(key)
            super().skip_to(key)
            self._file.write_skipped(self.skipped)

    def _extend(self, count: int) -> None:
        super()._extend(count)
        self._set_aside = self._file.set_keys_aside(self.next + count)


def checked_keys(keys: ArrayLike) -> NDArray[np.uint64]:
    """Returns keys as uint64[n].

    An array of signed integers is taken as the same bits: libraries without uint64 keep keys in them.

    Raises:
        ValueError: not integers, or integers of Python that are not in [0, 2**64).

    >>> checked_keys([1, 2**63])
    array([                  1, 9223372036854775808], dtype=uint64)
    """
    array = np.asarray(keys)
    if array.size and array.dtype.kind != "u":
        if array.dtype.kind != "i":
            # NumPy makes floats or objects of integers that have no common type, such as [1, 2**63].
            array = _as_objects(keys, array.dtype)
        if array.dtype == object or not hasattr(keys, "__array__"):
            _check_bounds(array.reshape(-1))
    return np.ascontiguousarray(array, np.uint64).reshape(-1)


def _as_objects(keys: ArrayLike, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Returns integers as they are; `dtype` is the one that NumPy chose."""
    objects = np.asarray(keys, object)
    for key in objects.flat:
        if not isinstance(key, (int, np.integer)) or isinstance(key, bool):
            raise ValueError(f"keys: expected integers, got {dtype}")
    return objects


def _check_bounds(keys: NDArray[Any]) -> None:
    outside = np.flatnonzero((keys < 0) | (keys >= _BOUND))
    if len(outside):
        raise ValueError(f"keys[{outside[0]}]: expected an integer in [0, 2**64), got {keys[outside[0]]}")
