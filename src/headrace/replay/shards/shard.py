"""One of several replays, which may be out of reach for a while."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from headrace.clock import Clock
from headrace.errors import Closed, DeadlineExceeded, Disconnected, HeadraceError
from headrace.replay.interface import ReplayLike

_LOGGER = logging.getLogger(__name__)
_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 30.0
# An attempt that waits for a machine without an answer takes at most this share of a caller's time.
_SHARE_OF_ATTEMPTS = 0.1

T = TypeVar("T")


class ShardDown(Disconnected):
    """A shard cannot be reached; the others can."""


class Shard:
    """A replay that is opened, and opened again after it was lost. Thread-safe.

    Args:
        number: of the shard.
        open_replay: returns the replay, or raises `Disconnected`, `Closed` or `DeadlineExceeded`.
        clock: for pauses between attempts.

    Attributes:
        number: see above.
        losses: how often it was lost.
        last_error: why it was lost last; "" before.
        rows_dropped: rows of its lanes that writers of this process could not store.
    """

    def __init__(self, number: int, open_replay: Callable[[], ReplayLike], clock: Clock) -> None:
        self.number = number
        self.losses = self.rows_dropped = 0
        self.last_error = ""
        self._is_closed = False
        self._open_replay = open_replay
        self._clock = clock
        self._lock = threading.Lock()
        self._replay: ReplayLike | None = None
        self._pause = _FIRST_PAUSE_SECONDS
        self._try_at = clock.monotonic()
        self._was_warned = False

    @property
    def is_down(self) -> bool:
        """Whether the last attempt to reach it failed."""
        return self._replay is None

    def use(self, call: Callable[[ReplayLike], T]) -> T:
        """Returns the result of a call with the replay.

        Raises:
            ShardDown: it is down, or was lost during the call.
        """
        replay = self._replay
        if replay is None:
            raise self._error()
        try:
            return call(replay)
        except (Disconnected, Closed) as error:
            raise self.lose(replay, error) from error

    def attempt(self, call: Callable[[ReplayLike], T]) -> T | HeadraceError:
        """Does the same as `use`, and returns errors of waits and of shards that are down."""
        try:
            return self.use(call)
        except (ShardDown, DeadlineExceeded, Closed) as error:
            return error

    def open(self) -> ReplayLike:
        """Returns the replay; opens it if it is time to, in the caller's thread.

        Raises:
            ShardDown: it cannot be reached.
        """
        return self._replay or self._reopened()

    def try_again(self) -> None:
        """Opens the replay if it is down, and it is time to.

        The caller's thread does it: in a task of Ray, only the thread of the task may ask where an actor is.
        """
        if self._replay is None:
            with suppress(ShardDown):
                self._reopened()

    def lose(self, replay: ReplayLike, error: HeadraceError) -> ShardDown:
        """Notes that a replay was lost, unless another one was opened since; returns the error to raise.

        Raises:
            Closed: the replay was not lost: `close` has closed it.
        """
        if self._is_closed:
            raise error
        with self._lock:
            if self._replay is replay:
                self._replay = None
                self._pause = _FIRST_PAUSE_SECONDS
                self._failed(error, self._clock.monotonic())
        return self._error()

    def _reopened(self) -> ReplayLike:
        if self._is_closed:
            raise Closed("the replay is closed")
        # Other threads do not wait for the attempt of one.
        if not self._lock.acquire(blocking=False):
            raise self._error()
        try:
            if self._replay is not None:
                return self._replay
            began = self._clock.monotonic()
            if began < self._try_at:
                raise self._error()
            try:
                self._replay = self._open_replay()
            except (Disconnected, Closed, DeadlineExceeded) as error:
                self._failed(error, began)
                raise self._error() from error
            if self._was_warned:
                _LOGGER.warning("shard %d is back", self.number)
            self._was_warned = False
            return self._replay
        finally:
            self._lock.release()

    def _failed(self, error: HeadraceError, began: float) -> None:
        now = self._clock.monotonic()
        self.last_error = str(error)
        self.losses += not self._was_warned
        if not self._was_warned:
            self._was_warned = True
            _LOGGER.warning("shard %d is down; the others go on without it: %s", self.number, error)
        self._try_at = now + max(self._pause, (now - began) / _SHARE_OF_ATTEMPTS)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE_SECONDS)

    def _error(self) -> ShardDown:
        return ShardDown(f"shard {self.number} is down: {self.last_error}")

    def close(self) -> None:
        """Closes the replay; it is not opened again."""
        self._is_closed = True
        replay = self._replay
        if replay is not None:
            replay.close()
