"""The options of workers and of shards that are Ray actors, checked without Ray."""

# Rules: collectors CY1

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal, Self

from headrace.checks import shown

Scheduling = Literal["spread", "pack"]


@dataclass(frozen=True, kw_only=True)
class RayOptions:
    """Placement of actors in a cluster.

    Args:
        num_cpus, num_gpus: of each actor; fractions are allowed.
        resources: custom resources of each actor.
        scheduling: "spread" places actors on different nodes where it can, "pack" on as few as possible.
        runtime_env: of the actors, as Ray takes it.
        address: of the cluster. None: the one that this process is connected to or that runs here, else a local one,
            which ends with the last collector that uses it.

    Raises:
        TypeError, ValueError: an option that does not fit.

    >>> RayOptions.of({"num_cpus": 2}).scheduling
    'spread'
    """

    argument: ClassVar[str] = "backend_options"
    num_cpus: float = 1
    num_gpus: float = 0
    resources: Mapping[str, float] = field(default_factory=dict)
    scheduling: Scheduling = "spread"
    runtime_env: Mapping[str, Any] = field(default_factory=dict)
    address: str | None = None

    @classmethod
    def of(cls, options: Any) -> Self:
        """Returns the checked options of a mapping; None: all by default."""
        known = [each.name for each in fields(cls)]
        if options is not None and not isinstance(options, Mapping):
            raise TypeError(f"{cls.argument}: expected a dict, got {shown(options)}")
        for name in options or ():
            if name not in known:
                raise TypeError(f"{cls.argument}: expected some of {', '.join(known)}, got {name!r}")
        return cls(**(options or {}))

    def __post_init__(self) -> None:
        self._check_amount("num_cpus", self.num_cpus)
        self._check_amount("num_gpus", self.num_gpus)
        for name in ("resources", "runtime_env"):
            value = getattr(self, name)
            if value is None:
                object.__setattr__(self, name, {})
            elif not isinstance(value, Mapping):
                raise TypeError(f"{self.argument}: {name}: expected a dict, got {shown(value)}")
        for name, amount in self.resources.items():
            self._check_amount(f"resources: {name}", amount)
        if self.scheduling not in ("spread", "pack"):
            raise ValueError(
                f"{self.argument}: scheduling: expected 'spread' or 'pack', got {shown(self.scheduling)}"
            )
        if self.address is not None and not isinstance(self.address, str):
            raise TypeError(f"{self.argument}: address: expected a str or None, got {shown(self.address)}")

    def _check_amount(self, name: str, amount: Any) -> None:
        if isinstance(amount, bool) or not isinstance(amount, int | float):
            raise TypeError(f"{self.argument}: {name}: expected a number, got {shown(amount)}")
        if not 0 <= amount < float("inf"):
            raise ValueError(f"{self.argument}: {name}: expected a finite number >= 0, got {amount}")


@dataclass(frozen=True, kw_only=True)
class ShardOptions(RayOptions):
    """Placement of the actors of a `ReplayShards`, and their checkpoints.

    Args:
        start_timeout: seconds for all actors to start.
        checkpoint: directory for checkpoints; None for none.

    >>> ShardOptions.of({"checkpoint": "/shared/run-7"}).start_timeout
    60.0
    """

    argument: ClassVar[str] = "options"
    start_timeout: float = 60.0
    checkpoint: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_amount("start_timeout", self.start_timeout)
        if self.checkpoint is not None and not isinstance(self.checkpoint, str | os.PathLike):
            raise TypeError(
                f"{self.argument}: checkpoint: expected a path or None, got {shown(self.checkpoint)}"
            )
