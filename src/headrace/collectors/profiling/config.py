"""The settings of a profile."""

# Rules: collectors CH2

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.checks import check_bits

if TYPE_CHECKING:
    from headrace.collectors.profiling.trace import Trace

ACTIVITIES = ("cpu", "cuda")
_DEFAULT_PATH = "./collector_profile_{worker_idx}.json"
_WORKER_IDX = "{worker_idx}"


def checked_workers(workers: Sequence[int] | None, count: int) -> tuple[int, ...]:
    """Returns the workers to profile, of `count`; worker 0 where none are named.

    Raises:
        ValueError: none, or one that does not exist.
        TypeError: not several numbers.
    """
    if not isinstance(workers, Iterable | None):
        raise TypeError(f"workers: expected a list of numbers of workers, got {workers!r}")
    chosen = (0,) if workers is None else tuple(workers)
    known = range(count)
    if not chosen or not all(idx in known for idx in chosen):
        raise ValueError(f"workers: expected some of 0 to {count - 1}, got {list(chosen)}")
    return chosen


@dataclass(frozen=True, kw_only=True)
class ProfileConfig:
    """The settings of a profile; see `enable_profile` of a collector for the meaning of each.

    Raises:
        ValueError, TypeError: a value that does not fit.
        FileNotFoundError: the folder of `save_path` does not exist.

    >>> ProfileConfig(num_rollouts=5).path(3)
    PosixPath('collector_profile_3.json')
    """

    workers: Sequence[int] = (0,)
    num_rollouts: int = 3
    warmup_rollouts: int = 1
    save_path: str | os.PathLike[str] | None = None
    activities: Sequence[str] = ACTIVITIES
    record_shapes: bool = True
    profile_memory: bool = False
    with_stack: bool = True
    with_flops: bool = False
    on_trace_ready: Callable[[Trace], Any] | None = None

    def __post_init__(self) -> None:
        self._check_rollouts()
        for name in ("record_shapes", "profile_memory", "with_stack", "with_flops"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name}: expected True or False, got {getattr(self, name)!r}")
        if isinstance(self.activities, str) or not isinstance(self.activities, Iterable):
            raise TypeError(f"activities: expected a list, got {self.activities!r}")
        if not isinstance(self.save_path, str | os.PathLike | None):
            raise TypeError(f"save_path: expected a path, got {self.save_path!r}")
        object.__setattr__(self, "workers", tuple(self.workers))
        object.__setattr__(self, "activities", tuple(self.activities))
        for activity in self.activities:
            if activity not in ACTIVITIES:
                raise ValueError(f"activities: expected some of {', '.join(ACTIVITIES)}, got {activity!r}")
        if self.on_trace_ready is None:
            self._check_path()
        elif not callable(self.on_trace_ready):
            raise TypeError(f"on_trace_ready: expected a callable, got {type(self.on_trace_ready).__name__}")

    def _check_rollouts(self) -> None:
        for name in ("num_rollouts", "warmup_rollouts"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise ValueError(f"{name}: expected an int >= 0, got {value!r}")
            check_bits(name, value)
        if self.num_rollouts <= self.warmup_rollouts:
            raise ValueError(
                f"num_rollouts: expected more than warmup_rollouts={self.warmup_rollouts}, got {self.num_rollouts}; "
                "rollouts from warmup_rollouts up to num_rollouts - 1 are recorded"
            )

    def _check_path(self) -> None:
        if len(self.workers) > 1 and self.path(0) == self.path(1):
            raise ValueError(
                f"save_path: expected {_WORKER_IDX} in the path, which {len(self.workers)} workers write, got "
                f"{os.fspath(self.save_path or '')!r}"
            )
        folder = self.path(0).parent
        if not folder.is_dir():
            raise FileNotFoundError(f"save_path: there is no folder {folder}")

    def path(self, worker_idx: int) -> Path:
        """Returns the file of a worker's trace."""
        template = os.fspath(_DEFAULT_PATH if self.save_path is None else self.save_path)
        return Path(template.replace(_WORKER_IDX, str(worker_idx)))
