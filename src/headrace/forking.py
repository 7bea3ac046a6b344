"""What has locks or threads survives `os.fork`: it is told before, and after on both sides.

A forked child has the memory of its parent, but only the thread that forked. A lock that another thread held stays held
for ever, and what that thread was doing stays half done. So those who follow forks bring themselves to rest before, and
begin anew in the child.

What the child inherits is a copy as of the fork. A call on it would look like a success and reach nobody, so objects
that stand for data or workers of one process refuse every use in another (`HomeProcess`).
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
    """The process that made an object; a child that was forked from it inherits the object and may not use it.

    Args:
        name: of the object, as an error begins with it.
        remedy: what to do instead, as sentences.

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
        """Raise if this process inherited the object.

        Raises:
            RuntimeError: with the remedy.
        """
        if self.is_elsewhere:
            raise RuntimeError(
                f"{self._name} belongs to process {self._pid}; process {os.getpid()} was forked from it and inherited "
                f"a copy, whose changes would reach nobody. {self._remedy}"
            )


forks = 0
"""How often this process and its ancestors were forked: another number in every child. Read it from the module."""


def _count_fork() -> None:
    global forks
    forks += 1


# Registered first, so that followers of forks know already that they are elsewhere.
register_at_fork(after_in_child=_count_fork)

_copies = threading.local()


@contextmanager
def reading_copies() -> Iterator[None]:
    """Let this thread draw from the copies of replays that a forked process has inherited."""
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
    """What is told of forks; called by the thread that forks."""

    def before_fork(self) -> None:
        """Come to rest: no thread may be in the middle of anything until one of the other two is called."""

    def after_fork_in_parent(self) -> None:
        """Go on."""

    def after_fork_in_child(self) -> None:
        """Go on without the other threads."""


class ForkFollowers:
    """Objects that are told of forks as long as they live.

    Of two collections the one made last is brought to rest first: it may need the other for that.
    """

    def __init__(self) -> None:
        # A plain dict: copying it and changing it are one step each, so no lock has to be held over a fork.
        self._followers: dict[int, weakref.ref[Forked]] = {}
        self._forking = threading.local()
        register_at_fork(
            before=self._before, after_in_parent=self._after_in_parent, after_in_child=self._after_in_child
        )

    def add(self, follower: Forked) -> None:
        """Tell this one from now on, until it is garbage."""
        place, followers = id(follower), self._followers
        followers[place] = weakref.ref(follower, lambda _: followers.pop(place, None))

    def _before(self) -> None:
        alive = [follower for each in tuple(self._followers.values()) if (follower := each()) is not None]
        told: list[Forked] = []
        self._forking.told = told
        # By age: two threads that fork at the same time take the locks in one order.
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
