"""Profiles of a collector."""

# Rules: collectors CH2 to CH4

from __future__ import annotations

import logging
import os
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from headrace.collectors.profiling.config import ACTIVITIES, ProfileConfig, checked_workers
from headrace.collectors.profiling.trace import Trace
from headrace.collectors.surface.parts import Call, CollectorParts

_log = logging.getLogger(__name__)


class ProfilingSurface(CollectorParts):
    """Methods that record where the time of rollouts goes, as Chrome traces."""

    # The profile that was asked for last.
    _profile: ProfileConfig | None = None

    @property
    @abstractmethod
    def _has_begun(self) -> bool:
        """Whether iteration or `start()` has begun."""

    def _profiled(self, workers: Sequence[int] | None) -> Sequence[int]:
        """Returns the workers to profile; see `checked_workers`."""
        return checked_workers(workers, self._layout.workers)

    @abstractmethod
    def _is_recorded(self, config: ProfileConfig) -> bool:
        """Whether all rollouts of a profile were handed out."""

    @property
    def profile_config(self) -> ProfileConfig | None:
        """The settings of the profile that is wanted or under way; None when off."""
        config = self._profile
        return None if config is None or self._is_recorded(config) else config

    def enable_profile(
        self,
        *,
        workers: Sequence[int] | None = None,
        num_rollouts: int = 3,
        warmup_rollouts: int = 1,
        save_path: str | os.PathLike[str] | None = None,
        activities: Sequence[str] | None = None,
        record_shapes: bool = True,
        profile_memory: bool = False,
        with_stack: bool = True,
        with_flops: bool = False,
        on_trace_ready: Callable[[Trace], Any] | None = None,
    ) -> None:
        """Records rollouts `warmup_rollouts .. num_rollouts - 1`, counted from 0, of some workers. Then it stops.

        The trace of a worker is Chrome trace JSON, for chrome://tracing or ui.perfetto.dev. It is complete on disk
        before the last recorded rollout is handed out. With a torch module as policy torch's profiler runs too, and
        its events are in the same file. Collection that ends before rollout `num_rollouts - 1` leaves no trace.

        Args:
            workers: numbers of the workers to profile; None: worker 0. Ignored by `Collector`.
            num_rollouts: where the recording ends.
            warmup_rollouts: rollouts that are not recorded.
            save_path: the file; `{worker_idx}` in it is replaced by the worker's number. None:
                `./collector_profile_{worker_idx}.json`.
            activities: what torch's profiler records: some of "cpu" and "cuda"; None: both.
            record_shapes: torch records shapes of operands. Without torch: `args["shapes"]` of events has the shapes
                of observations and actions.
            profile_memory: torch records memory. Without torch: `args["peak_bytes"]` of a rollout is the peak of the
                memory that Python has allocated; tracemalloc, which tells it, slows Python code down several times.
            with_stack: torch records Python stacks. Without torch: the stack of the collecting thread every 5 ms.
            with_flops: torch estimates operations. Without torch: no effect, and a warning.
            on_trace_ready: called with the trace in the collecting process; then no file is written.
                `trace.export(path)` writes one. Its exceptions are exceptions of the collection.

        Raises:
            ValueError: `num_rollouts <= warmup_rollouts`, an unknown worker or activity, or one `save_path` for several
                workers.
            TypeError: a value of another type; `on_trace_ready` cannot be sent to a worker.
            FileNotFoundError: the folder of `save_path` does not exist.
            RuntimeError: iteration or `start()` has begun.
        """
        if self._has_begun:
            raise RuntimeError("enable_profile: expected a collector that has not begun to collect")
        config = ProfileConfig(
            workers=self._profiled(workers),
            num_rollouts=num_rollouts,
            warmup_rollouts=warmup_rollouts,
            save_path=save_path,
            activities=ACTIVITIES if activities is None else activities,
            record_shapes=record_shapes,
            profile_memory=profile_memory,
            with_stack=with_stack,
            with_flops=with_flops,
            on_trace_ready=on_trace_ready,
        )
        calls: list[Call] = [((config, idx), {}) for idx in range(self._layout.workers)]
        self._call_each("_begin_profile", calls, "enable_profile")
        self._profile = config

    def disable_profile(self) -> None:
        """Discards a recording under way, or a request for one. Does nothing when off, and never raises."""
        if self.profile_config is None:
            return
        self._profile = None
        try:
            self._call_each("_end_profile", [((), {})] * self._layout.workers, "disable_profile")
        except Exception as error:  # A worker that is gone records nothing.
            _log.debug("disable_profile: %s", error)
