"""Weights in memory that the processes of one machine share; `board.py` says how the memory is used."""

# Rules: collectors CW7

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from headrace.closing import Closing
from headrace.errors import Closed, DeadlineExceeded
from headrace.forking import HomeProcess
from headrace.system import need_linux
from headrace.weights.board import BoardReader, WeightBoard
from headrace.weights.descriptor import portable
from headrace.weights.layout import WeightLayout
from headrace.weights.versions import next_version

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

    >>> import numpy as np
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
        self._board = WeightBoard(self._layout)
        self._home = HomeProcess("this publishing end", "Publish there; `receiver()` works here too")
        self._lock = threading.Lock()
        arrays = self._layout.arrays(weights)
        self._board.publish(arrays, 0)
        # The second slot too, so that its memory is allocated now and not in a later `publish`.
        self._board.publish(arrays, 0)

    @property
    def version(self) -> int:
        """The number of the newest set."""
        self._home.check()
        return self._board.newest().number

    def publish(self, weights: Any, *, version: int | None = None) -> int:
        """Makes `weights` the newest set without waiting for readers. After the call the caller may change its arrays.

        Args:
            weights: a pytree of arrays like the first one.
            version: its number, larger than the last one; None for the next number.

        Returns:
            The number.

        Raises:
            SpecError: names, shapes or dtypes differ; the message has the path. Nothing is published.
            TypeError, ValueError: `version` is not an integer above the last one and below 2^31.
            Closed: after `close`.
            RuntimeError: this process was forked from the publisher's process.
        """
        self._home.check()
        arrays = self._layout.arrays(weights)
        with self._alone():
            if self._board.is_closed:
                raise Closed("these weights are closed: expected publish before close")
            last = self._board.newest().number
            number = next_version(last, version)
            self._board.publish(arrays, number)
            return number

    def receiver(self) -> SharedMemoryReceiver:
        """Returns a new receiver. Pickle it to another process of this machine, or use it here.

        Raises:
            Closed: after `close`.
        """
        with self._alone():
            if self._board.is_closed:
                raise Closed("these weights are closed: expected receiver before close")
            return SharedMemoryReceiver.from_fd(os.dup(self._board.descriptor), self._layout)

    def close(self) -> None:
        """Releases the memory. Existing receivers can still read the last set."""
        with self._alone():
            self._board.close()

    def _alone(self) -> AbstractContextManager[object]:
        """Returns the lock, or in a forked child nothing: a thread of the parent may have held the lock."""
        return nullcontext() if self._home.is_elsewhere else self._lock

    def __del__(self) -> None:
        # The lock is the last thing that the constructor may fail before.
        if hasattr(self, "_lock"):
            self.close()


class SharedMemoryReceiver:
    """Receiver of `SharedMemory`. It cannot change the memory.

    `SharedMemory.receiver` makes it. Pickling it sends the descriptor along.
    """

    def __init__(self, descriptor: int, layout: WeightLayout) -> None:
        self._board = BoardReader(descriptor, layout)

    @classmethod
    def from_fd(cls, descriptor: int, layout: WeightLayout) -> SharedMemoryReceiver:
        """Returns a receiver for a descriptor that was sent in another way (over a Unix socket), and owns it."""
        return cls(descriptor, layout)

    @property
    def descriptor(self) -> int:
        """The descriptor of the memory, to be sent to another process together with `layout`."""
        return self._board.descriptor

    @property
    def layout(self) -> WeightLayout:
        """Names and places of the arrays."""
        return self._board.shape.layout

    @property
    def version(self) -> int:
        """The number of the newest set: one read of a shared integer."""
        try:
            return self._board.number
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
                    f"for {_READ_SECONDS:g} s each set of weights ({self.layout.nbytes} bytes) was replaced twice "
                    f"while it was copied, the last one was {self.version}: publish less often"
                )
        return newest

    def try_read(self) -> tuple[int, Any] | None:
        """Reads once like `read`; returns None if the publisher replaced the set twice meanwhile.

        Raises:
            Closed: after `close`.
        """
        if self._board.is_closed:
            raise Closed("this receiver is closed")
        newest = self._board.newest()
        if newest is None:
            return None
        arrays = self._board.copy(newest)
        return None if arrays is None else (newest.number, self.layout.tree(arrays))

    def close(self) -> None:
        """Gives the memory back. More calls do nothing."""
        self._board.close()

    def __reduce__(self) -> tuple[Callable[..., SharedMemoryReceiver], tuple[Any, ...]]:
        if self._board.is_closed:
            raise Closed("this receiver is closed: expected it to be pickled before")
        return _rebuild, (*portable(self.descriptor), self.layout)


def _rebuild(
    opener: Callable[..., int], arguments: tuple[Any, ...], layout: WeightLayout
) -> SharedMemoryReceiver:
    return SharedMemoryReceiver.from_fd(opener(*arguments), layout)
