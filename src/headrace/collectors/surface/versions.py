"""Versions of the policy."""

# Rules: collectors CV3, CV4

from __future__ import annotations

from abc import abstractmethod

from headrace.collectors.updates.numbering import PolicyVersion, Versions


class VersionSurface:
    """The public methods of versions.

    Attributes:
        _versions: of the collector.
    """

    _versions: Versions

    @abstractmethod
    def _check_usable(self) -> None:
        """Raises if the collector cannot be used: `Closed` after `shutdown`, RuntimeError in a forked process."""

    @abstractmethod
    def _check_home(self) -> None:
        """Raises RuntimeError in a forked process."""

    @abstractmethod
    def _renumber(self, number: int) -> None:
        """Gives the present weights another number, from the next step on."""

    @property
    def policy_version(self) -> int | str | None:
        """The version of the newest weights; None without `track_policy_version`."""
        self._check_home()
        return self._versions.version

    def get_policy_version(self) -> int | str | None:
        """Returns the version of the newest weights; None without `track_policy_version`."""
        return self.policy_version

    def version_id(self, number: int) -> int | str:
        """Returns the version that rows carry as `number`: the number, or with `track_policy_version="uuid"` its UUID.

        Raises:
            RuntimeError: without `track_policy_version`.
            ValueError: a negative number, which random actions carry.
        """
        return self._tracked("version_id").version_id(number)

    def increment_version(self) -> None:
        """Takes the next number without new weights. Rows carry it from the next step on.

        Raises:
            RuntimeError: without `track_policy_version`.
            Closed: after `shutdown`.
        """
        self._check_usable()
        self._tracked("increment_version")
        self._renumber(self._versions.take())

    def _tracked(self, caller: str) -> PolicyVersion:
        tracked = self._versions.tracked
        if tracked is None:
            raise RuntimeError(f"{caller}: expected a collector with track_policy_version=True")
        return tracked
