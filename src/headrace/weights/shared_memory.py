"""Weights in memory that the processes of one machine share.

Two slots hold the last two sets. The publisher writes the slot that does not hold the newest one:

    stamp[slot] = 0          the slot is being written
    copy the arrays
    stamp[slot] = k          it holds publication k
    newest = k               k decides the slot: k % 2
    version = v              written last: a reader that sees v finds the set

A reader copies slot `newest % 2` and reads its stamp before and after the copy. If one of them differs from `newest`,
the publisher has published two further sets meanwhile, and the reader copies again. There is no lock in the memory, so
a reader or a publisher may be killed at any moment: the newest complete set stays readable. (See L. Lamport,
"Concurrent reading and writing", 1977; sequence locks use the same idea.)
"""

# Rules: collectors CW7

from __future__ import annotations

import mmap
import os
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.closing import Closing
from headrace.errors import Closed, DeadlineExceeded
from headrace.forking import HomeProcess
from headrace.system import memory_file, need_linux, register_at_fork
from headrace.weights.descriptor import portable
from headrace.weights.layout import WeightLayout

# Places of the 64-bit integers of the header, each on a cache line of its own.
_VERSION, _NEWEST, _STAMP, _SLOT_VERSION = 0, 8, (16, 24), (32, 40)
_HEADER = 4096
# A set is overtaken if copying it takes as long as publishing one; ten seconds of this are not expected.
_READ_SECONDS = 10.0


class SharedMemory(Closing):
    """Publisher of the default scheme between processes of one machine.

    The first set is published at once as version 0.

    Args:
        weights: a pytree of arrays (NumPy, torch, JAX); its names, shapes and dtypes are those of all later sets.

    Raises:
        SpecError: a leaf is not an array; the message has its path.
        Unsupported: the system is not Linux.

    >>> scheme = SharedMemory({"w": np.zeros(2)})
    >>> receiver = scheme.receiver()
    >>> scheme.publish({"w": np.ones(2)})
    1
    >>> receiver.version, receiver.read()
    (1, (1, {'w': array([1., 1.])}))
    >>> receiver.close(); scheme.close()
    """

    def __init__(self, weights: Any) -> None:
        need_linux(
            "hr.weights.SharedMemory",
            "memory that processes share by its descriptor",
            "Between threads, a policy's own `load_state_dict` does",
        )
        self._layout = WeightLayout(weights)
        self._descriptor = memory_file("headrace-weights", _HEADER + 2 * _slot_bytes(self._layout))
        self._mapping = mmap.mmap(self._descriptor, 0)
        self._header = memoryview(self._mapping).cast("q")
        self._slots = _slot_views(self._layout, self._mapping)
        self._publications = 0
        self._last_version = 0
        self._closed = False
        self._home = HomeProcess("this publishing end", "Publish there; `receiver()` works here too")
        self._lock = threading.Lock()
        arrays = self._layout.arrays(weights)
        self._write(arrays, 0)
        # The second slot too, so that its memory is allocated now and not in a later `publish`.
        self._write(arrays, 0)

    @property
    def version(self) -> int:
        """The number of the newest set."""
        self._home.check()
        return self._last_version

    def publish(self, weights: Any, *, version: int | None = None) -> int:
        """Makes `weights` the newest set without waiting for readers. After the call the caller may change its arrays.

        Args:
            weights: a pytree of arrays like the first one.
            version: its number, larger than the last one; None for the next number.

        Returns:
            The number.

        Raises:
            SpecError: names, shapes or dtypes differ; the message has the path. Nothing is published.
            ValueError: `version` is not larger than the last one.
            Closed: after `close`.
            RuntimeError: this process was forked from the publisher's process.
        """
        self._home.check()
        arrays = self._layout.arrays(weights)
        with self._alone():
            if self._closed:
                raise Closed("these weights are closed: expected publish before close")
            if version is None:
                version = self._last_version + 1
            if version <= self._last_version:
                raise ValueError(
                    f"version: expected more than {self._last_version}, the last one, got {version}"
                )
            self._write(arrays, version)
            return version

    def receiver(self) -> SharedMemoryReceiver:
        """Returns a new receiver. Pickle it to another process of this machine, or use it here.

        Raises:
            Closed: after `close`.
        """
        with self._alone():
            if self._closed:
                raise Closed("these weights are closed: expected receiver before close")
            return SharedMemoryReceiver.from_fd(os.dup(self._descriptor), self._layout)

    def close(self) -> None:
        """Releases the memory. Existing receivers can still read the last set."""
        with self._alone():
            if self._closed:
                return
            self._closed = True
            self._slots = ()
            self._header.release()
            self._mapping.close()
            os.close(self._descriptor)

    def _alone(self) -> AbstractContextManager[object]:
        """Returns the lock, or in a forked child nothing: a thread of the parent may have held the lock."""
        return nullcontext() if self._home.is_elsewhere else self._lock

    def __del__(self) -> None:
        # The lock is the last thing that the constructor may fail before.
        if hasattr(self, "_lock"):
            self.close()

    def _write(self, arrays: list[NDArray[Any]], version: int) -> None:
        publication = self._publications + 1
        slot = publication % 2
        header = self._header
        header[_STAMP[slot]] = 0
        memory_fence()
        for place, array in zip(self._slots[slot], arrays, strict=True):
            np.copyto(place, array)
        memory_fence()
        header[_SLOT_VERSION[slot]] = version
        header[_STAMP[slot]] = publication
        memory_fence()
        header[_NEWEST] = publication
        memory_fence()
        header[_VERSION] = version
        self._publications, self._last_version = publication, version


class SharedMemoryReceiver:
    """Receiver of `SharedMemory`. It cannot change the memory.

    `SharedMemory.receiver` makes it. Pickling it sends the descriptor along.
    """

    def __init__(self, descriptor: int, layout: WeightLayout) -> None:
        self._descriptor = descriptor
        self._layout = layout
        self._mapping = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
        self._header = memoryview(self._mapping).cast("q")
        self._slots = _slot_views(layout, self._mapping)
        self._closed = False

    @classmethod
    def from_fd(cls, descriptor: int, layout: WeightLayout) -> SharedMemoryReceiver:
        """Returns a receiver for a descriptor that was sent in another way (over a Unix socket), and owns it."""
        return cls(descriptor, layout)

    @property
    def descriptor(self) -> int:
        """The descriptor of the memory, to be sent to another process together with `layout`."""
        return self._descriptor

    @property
    def layout(self) -> WeightLayout:
        """Names and places of the arrays."""
        return self._layout

    @property
    def version(self) -> int:
        """The number of the newest set: one read of a shared integer."""
        try:
            return self._header[_VERSION]
        except ValueError:
            raise Closed("this receiver is closed") from None

    def read(self) -> tuple[int, Any]:
        """Returns the version of the newest complete set, and a copy of the set.

        Raises:
            Closed: after `close`.
            DeadlineExceeded: each set was replaced while it was copied, for ten seconds.
        """
        end = time.monotonic() + _READ_SECONDS
        while (newest := self.try_read()) is None:
            if time.monotonic() >= end:
                raise DeadlineExceeded(
                    f"for {_READ_SECONDS:g} s each set of weights ({self._layout.nbytes} bytes) was replaced twice "
                    f"while it was copied, the last one was {self.version}: publish less often"
                )
        return newest

    def try_read(self) -> tuple[int, Any] | None:
        """Reads once like `read`; returns None if the publisher replaced the set twice meanwhile.

        Raises:
            Closed: after `close`.
        """
        if self._closed:
            raise Closed("this receiver is closed")
        arrays = [np.empty(place.shape, place.dtype) for place in self._layout.places]
        version = self._try_copy(arrays)
        return None if version is None else (version, self._layout.tree(arrays))

    def close(self) -> None:
        """Gives the memory back. More calls do nothing."""
        if not self._closed:
            self._closed = True
            self._slots = ()
            self._header.release()
            self._mapping.close()
            os.close(self._descriptor)

    def __del__(self) -> None:
        if hasattr(self, "_closed"):
            self.close()

    def __reduce__(self) -> tuple[Callable[..., SharedMemoryReceiver], tuple[Any, ...]]:
        if self._closed:
            raise Closed("this receiver is closed: expected it to be pickled before")
        return _rebuild, (*portable(self._descriptor), self._layout)

    def _try_copy(self, arrays: list[NDArray[Any]]) -> int | None:
        header = self._header
        newest = header[_NEWEST]
        slot = newest % 2
        memory_fence()
        version = header[_SLOT_VERSION[slot]]
        if header[_STAMP[slot]] != newest:
            return None
        memory_fence()
        for array, place in zip(arrays, self._slots[slot], strict=True):
            np.copyto(array, place)
        memory_fence()
        return version if header[_STAMP[slot]] == newest else None


_FENCE = threading.Lock()


def _renew_fence() -> None:
    global _FENCE
    _FENCE = threading.Lock()


# In a forked child another thread of the parent may have held it.
register_at_fork(after_in_child=_renew_fence)


def memory_fence() -> None:
    """Orders the reads and writes before the call before those after it, for other processors.

    Processors other than x86 may reorder plain writes. Taking and releasing a lock twice is two release-acquire pairs,
    which is a full fence, and the only fence in Python. The lock belongs to this process and is held for this moment
    only.
    """
    with _FENCE:
        pass
    with _FENCE:
        pass


def _slot_bytes(layout: WeightLayout) -> int:
    return -(-layout.nbytes // _HEADER) * _HEADER


def _slot_views(layout: WeightLayout, mapping: mmap.mmap) -> tuple[tuple[NDArray[Any], ...], ...]:
    starts = (_HEADER, _HEADER + _slot_bytes(layout))
    return tuple(tuple(place.view(mapping, start) for place in layout.places) for start in starts)


def _rebuild(
    opener: Callable[..., int], arguments: tuple[Any, ...], layout: WeightLayout
) -> SharedMemoryReceiver:
    return SharedMemoryReceiver.from_fd(opener(*arguments), layout)
