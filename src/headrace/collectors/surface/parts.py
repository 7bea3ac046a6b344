"""The parts of a collector that its public methods use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from headrace.collectors.options import CollectorOptions
from headrace.collectors.updates.numbering import Versions
from headrace.collectors.updates.updater import WeightUpdater
from headrace.envs.protocol import Indices
from headrace.forking import HomeProcess

Call: TypeAlias = tuple[Sequence[Any], Mapping[str, Any]]
"""Arguments and keyword arguments of a call."""


class Layout(NamedTuple):
    """Sizes of a collector, which its environments tell.

    Attributes:
        workers: W; 1 inline.
        num_envs: environments of all workers.
        batch_frames: frames of a batch without masked rows.
        autoreset: the mode of the environments.
        lanes_may_wait: whether a step may leave environments out.
        reset_together: see `CollectingLoop`.
    """

    workers: int
    num_envs: int
    batch_frames: int
    autoreset: str
    lanes_may_wait: bool
    reset_together: int


class CollectorParts(ABC):
    """The parts on which the public methods of all collectors are built.

    Attributes:
        _home: the process that may use the collector.
        _options: its arguments.
        _layout: its sizes.
        _versions, _updater: number and publish new weights.
    """

    _home: HomeProcess
    _options: CollectorOptions
    _layout: Layout
    _versions: Versions
    _updater: WeightUpdater

    @property
    @abstractmethod
    def policy(self) -> Any:
        """The policy object of this process."""

    @abstractmethod
    def _check_usable(self) -> None:
        """Raises if the collector cannot be used: `Closed` after `shutdown`, RuntimeError in a forked process."""

    @abstractmethod
    def _call_each(self, path: str, calls: Sequence[Call], caller: str = "") -> list[Any]:
        """Calls a method of the own collectors of the first workers (inline: of this one).

        Args:
            path: of the method.
            calls: one for each of these workers.
            caller: what the user has called, for messages; empty: the method.

        Returns:
            One result for each of them.
        """

    @abstractmethod
    def _reset_envs(self, envs: Indices | None) -> None:
        """Resets these environments, rising; None: all."""
