"""Numbers of the sets of weights."""

# Rules: collectors CV1, CV3, CV4, CV5

from __future__ import annotations

import secrets
import threading
import uuid
from collections.abc import Mapping
from typing import Any, Literal

import xxhash

from headrace.collectors.statistics import Tally

Kind = Literal["int", "uuid"]


class PolicyVersion:
    """The number of the newest set of weights, which several collectors can share (`track_policy_version`).

    Each publication of any of them takes the next number, so a number names one set everywhere.

    Args:
        kind: "int" shows versions as numbers, "uuid" as UUIDs of version 4.

    Raises:
        ValueError: another kind.

    >>> version = PolicyVersion()
    >>> version.version, version.increment(), version.version
    (0, 1, 1)
    >>> import uuid
    >>> uuid.UUID(PolicyVersion("uuid").version).version
    4
    """

    def __init__(self, kind: Kind = "int") -> None:
        if kind not in ("int", "uuid"):
            raise ValueError(f'kind: expected "int" or "uuid", got {kind!r}')
        self._kind = kind
        self._number = 0
        # UUIDs are hashes of this secret and the number, so they need no memory.
        self._secret = secrets.token_hex(16)
        self._lock = threading.Lock()

    @property
    def kind(self) -> Kind:
        """How versions are shown: "int" or "uuid"."""
        return self._kind

    @property
    def number(self) -> int:
        """The newest number, as rows carry it."""
        return self._number

    @property
    def version(self) -> int | str:
        """The newest version: a number, or its UUID."""
        return self.version_id(self._number)

    def increment(self) -> int | str:
        """Takes the next number and returns the version."""
        return self.version_id(self.take())

    def take(self) -> int:
        """Takes the next number and returns it. Thread-safe."""
        with self._lock:
            self._number += 1
            return self._number

    def reach(self, number: int) -> None:
        """Makes later numbers larger than this one, which another publisher has given."""
        with self._lock:
            self._number = max(self._number, number)

    def version_id(self, number: int) -> int | str:
        """Returns the version of a number: the number itself, or its UUID.

        Raises:
            ValueError: a negative number, which names no weights.
        """
        if number < 0:
            raise ValueError(f"version_id: expected a number >= 0, got {number}: no weights acted")
        if self._kind == "int":
            return number
        digest = xxhash.xxh3_128_digest(f"{self._secret} {number}".encode())
        return str(uuid.UUID(bytes=digest, version=4))

    def state(self) -> dict[str, Any]:
        """Returns the newest number, and the key of its UUIDs."""
        return {"number": self._number, "secret": self._secret}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restores what `state` returned: the next publication has the number after it."""
        with self._lock:
            self._number, self._secret = int(state["number"]), str(state["secret"])

    def __repr__(self) -> str:
        return f"PolicyVersion({self._kind!r}, version={self.version!r})"


def tracked_version(track: object) -> PolicyVersion | None:
    """Returns the numbering for the argument `track_policy_version`; None: versions are not tracked.

    Raises:
        ValueError: not one of False, True, "int", "uuid" and a `PolicyVersion`.
    """
    if isinstance(track, PolicyVersion):
        return track
    if track is False:
        return None
    if track is True or track == "int":
        return PolicyVersion("int")
    if track == "uuid":
        return PolicyVersion("uuid")
    raise ValueError(
        f'track_policy_version: expected False, True, "int", "uuid" or a hr.PolicyVersion, got {track!r}'
    )


class Versions:
    """The versions of one collector. Rows are numbered also where versions are not tracked.

    Args:
        track: the argument `track_policy_version`.
        tally: has the newest number of the collector.

    Attributes:
        tracked: the numbering that the user sees; None: not tracked.
    """

    def __init__(self, track: object, tally: Tally) -> None:
        self.tracked = tracked_version(track)
        self._numbering = self.tracked or PolicyVersion()
        self._tally = tally
        self._tally.newest = self._numbering.number
        # Whether the newest number is of a set that this collector has numbered.
        self._is_own = False

    @property
    def newest(self) -> int:
        """The number of the collector's newest set."""
        return self._tally.newest

    def take(self) -> int:
        """Returns the number of the next set."""
        self._tally.newest = number = self._numbering.take()
        self._is_own = True
        return number

    def reach(self, number: int) -> None:
        """Makes the newest number at least this one, which a publishing end has used already."""
        if number > self.newest:
            self._numbering.reach(number)
            self._tally.newest = number

    def follow(self, number: int) -> int:
        """Returns the number of a set that another publisher has numbered.

        It is the publisher's, unless this collector has given it to other weights already: then the next one.
        """
        if number < self.newest or (number == self.newest and self._is_own):
            return self.take()
        self._numbering.reach(number)
        self._tally.newest, self._is_own = number, False
        return number

    def state(self) -> dict[str, Any]:
        """Returns the versions, to be saved."""
        return {"newest": self.newest, **self._numbering.state()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restores what `state` returned."""
        self._numbering.load_state(state)
        self._tally.newest, self._is_own = int(state["newest"]), True
