"""Safe `os.fork` for objects with locks or threads: they are notified before the fork, and after it on both sides.

A forked child has the memory of its parent, but only the thread that forked. A lock held by another thread stays held
for ever, and the work of that thread stays half done. So followers of forks stop their threads at a safe point before
the fork, and start again in the child.

The child inherits a copy of every object as of the fork. A call on the copy would seem to succeed without any effect in
the parent. So objects that stand for data or workers of one process refuse every use in another (`HomeProcess`).
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from headrace.system import register_at_fork


class HomeProcess:
    """The process that made an object; a forked child inherits the object but may not use it.

    Args:
        name: of the object; an error message begins with it.
        remedy: the alternative, as sentences.

    >>> home = HomeProcess("this queue", "Make one in the process that uses it.")
    >>> home.check()
    >>> home.is_elsewhere
    False
    """

    def __init__(self, name: str, remedy: str) -> None:
        self._name = name
        self._remedy = remedy
        self._pid = os.getpid()
        self._forks = forks

    @property
    def is_elsewhere(self) -> bool:
        """Whether this process inherited the object from another."""
        return self._forks != forks

    def check(self) -> None:
        """Raises if this process inherited the object.

        Raises:
            RuntimeError: this process was forked from the home process; the message has the remedy.
        """
        if self.is_elsewhere:
            raise RuntimeError(
                f"{self._name} belongs to process {self._pid}; process {os.getpid()} was forked from it and inherited "
                f"a copy, whose changes would reach nobody. {self._remedy}"
            )


forks = 0
"""Number of forks of this process and its ancestors, different in every child. Read it from the module."""


events = 0
"""Rises before and after each fork, in the parent and in the child. Read it from the module.

A child has a copy of all that its parent made before the number rose.
"""


def _count_event() -> None:
    global events
    events += 1


def _count_fork() -> None:
    global forks
    forks += 1


# Registered first, so that the followers' callbacks in the child see the new count.
register_at_fork(before=_count_event, after_in_parent=_count_event, after_in_child=_count_event)
register_at_fork(after_in_child=_count_fork)

_copies = threading.local()


@contextmanager
def reading_copies() -> Iterator[None]:
    """Lets this thread draw from the copies of replays that a forked process has inherited."""
    before = may_read_copies()
    _copies.are_read = True
    try:
        yield
    finally:
        _copies.are_read = before


def may_read_copies() -> bool:
    """Whether this thread is within `reading_copies`."""
    return getattr(_copies, "are_read", False)


class Forked(Protocol):
    """Callbacks for forks, called by the thread that forks."""

    def before_fork(self) -> None:
        """Brings all threads to a safe point, where they stay until one of the other two methods is called."""

    def after_fork_in_parent(self) -> None:
        """Lets the threads continue."""

    def after_fork_in_child(self) -> None:
        """Continues without the other threads."""


class ForkFollowers:
    """Objects that are notified of forks as long as they live.

    The collection made last is stopped first, because its objects may need those of an older collection to stop.
    """

    def __init__(self) -> None:
        # A plain dict: copying and changing it are atomic, so no lock has to be held across a fork.
        self._followers: dict[int, weakref.ref[Forked]] = {}
        self._forking = threading.local()
        register_at_fork(
            before=self._before, after_in_parent=self._after_in_parent, after_in_child=self._after_in_child
        )

    def add(self, follower: Forked) -> None:
        """Notifies `follower` from now on, until it is garbage collected."""
        place, followers = id(follower), self._followers
        followers[place] = weakref.ref(follower, lambda _: followers.pop(place, None))

    def _before(self) -> None:
        alive = [follower for each in tuple(self._followers.values()) if (follower := each()) is not None]
        told: list[Forked] = []
        self._forking.told = told
        # In order of age, so that two threads that fork at the same time take the locks in the same order.
        for follower in alive:
            follower.before_fork()
            told.append(follower)

    def _after_in_parent(self) -> None:
        for follower in self._told():
            follower.after_fork_in_parent()

    def _after_in_child(self) -> None:
        for follower in self._told():
            follower.after_fork_in_child()

    def _told(self) -> list[Forked]:
        told: list[Forked] = self._forking.told
        self._forking.told = []
        return told


REPLAYS = ForkFollowers()
