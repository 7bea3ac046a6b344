"""Records rollouts for a trace, in the thread that collects."""

# Rules: collectors CH2 to CH4

from __future__ import annotations

import logging
import os
import threading
import time
import tracemalloc
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.collectors.profiling.config import ProfileConfig
from headrace.collectors.profiling.stacks import StackSampler
from headrace.collectors.profiling.trace import Trace

if TYPE_CHECKING:
    from headrace.collectors.profiling.torch_events import TorchEvents

_log = logging.getLogger(__name__)

Span: TypeAlias = tuple[str, float, float, dict[str, Any]]
"""The name of an event, its begin and its end, and its `args`."""


class TraceRecorder:
    """Times of rollouts `warmup_rollouts .. num_rollouts - 1`, and the trace that is made of them.

    Args:
        config: the settings.
        worker_idx: the worker that collects; 0 inline.
        clock: returns the seconds with which events are noted.
        shapes: of observations and actions of one step, by path.
        with_torch: torch's profiler runs too.

    Attributes:
        is_recording: whether the rollout under way is recorded, or the wait between two that are.
        is_complete: whether the last rollout was recorded and the trace was delivered.
    """

    def __init__(
        self,
        config: ProfileConfig,
        worker_idx: int,
        clock: Callable[[], float],
        shapes: Mapping[str, list[int]],
        *,
        with_torch: bool,
    ) -> None:
        self.config = config
        self._worker_idx = worker_idx
        self._clock = clock
        self._shapes = dict(shapes) if config.record_shapes and not with_torch else None
        self._with_torch = with_torch
        self.is_recording = self.is_complete = False
        self._rollout = 0
        self._spans: list[Span] = []
        # Steps by their times and the rollout. They become events at the end: what recording costs is in no event.
        self._steps: list[tuple[float, float, float, float, float, int]] = []
        # Number of events and steps before the rollout under way; None: none is under way.
        self._before: tuple[int, int] | None = None
        self._torch: TorchEvents | None = None
        self._stacks: StackSampler | None = None
        self._traces_memory = False
        if config.with_flops and not with_torch:
            warnings.warn(
                "with_flops has no effect: the policy is not a torch module", UserWarning, stacklevel=2
            )

    # ---- rollouts --------------------------------------------------------------------------------------------------

    def begin_rollout(self) -> None:
        """Notes that a rollout begins. Events of one that did not end are forgotten."""
        if self._before is not None:
            spans, steps = self._before
            del self._spans[spans:], self._steps[steps:]
        if not self.is_recording and self._rollout == self.config.warmup_rollouts:
            self._start()
        if self._traces_memory:
            tracemalloc.reset_peak()
        self._before = len(self._spans), len(self._steps)
        self._begun = self._clock()

    def end_rollout(self) -> None:
        """Notes that the rollout is complete. After the last one the trace is written, or given to the callback.

        Raises:
            Exception: raised by `on_trace_ready`.
        """
        if self.is_recording:
            peak = {"peak_bytes": tracemalloc.get_traced_memory()[1]} if self._traces_memory else {}
            self.span("rollout", self._begun, self._clock(), **peak)
        self._before = None
        self._rollout += 1
        if self._rollout == self.config.num_rollouts:
            self._deliver()

    def _start(self) -> None:
        self._thread = threading.get_native_id()
        if self._with_torch:
            from headrace.collectors.profiling.torch_events import TorchEvents

            self._torch = TorchEvents(self.config)
        else:
            if self.config.with_stack:
                self._stacks = StackSampler(threading.get_ident(), self._clock)
            if self.config.profile_memory and not tracemalloc.is_tracing():
                tracemalloc.start()
                self._traces_memory = True
        self._base_ns, self._origin = time.time_ns(), self._clock()
        self.is_recording = True

    def stop(self) -> None:
        """Ends a recording under way. The trace is not made."""
        self.is_recording = False
        if self._torch is not None:
            self._torch.stop()
        if self._stacks is not None:
            self._stacks.stop()
        if self._traces_memory:
            tracemalloc.stop()
            self._traces_memory = False

    def _deliver(self) -> None:
        self.stop()
        self.is_complete = True
        trace = self._trace()
        if self.config.on_trace_ready is not None:
            self.config.on_trace_ready(trace)
            return
        path = self.config.path(self._worker_idx)
        try:
            trace.export(path)
        except OSError as error:  # A full disk costs the trace, and no rollout.
            _log.error("the profile of worker %d could not be written: %s", self._worker_idx, error)
        else:
            _log.info("the profile of worker %d is in %s", self._worker_idx, path)

    # ---- events ----------------------------------------------------------------------------------------------------

    def span(self, name: str, begin: float, end: float, **args: Any) -> None:
        """Records an event of the rollout under way, or of the next one."""
        self._spans.append((name, begin, end, {"rollout": self._rollout, **args}))

    def step(self, begin: float, acted: float, stepped: float, written: float, restarted: float) -> None:
        """Records one step of all environments by the times between its parts.

        Args:
            begin, acted, stepped, written: the policy, the environments and the write follow each other.
            restarted: the end of the resets; equal to `written` if there were none.
        """
        self._steps.append((begin, acted, stepped, written, restarted, self._rollout))

    def _all_spans(self) -> list[Span]:
        """Returns all events, in the order in which they began."""
        spans, shapes = list(self._spans), {} if self._shapes is None else {"shapes": self._shapes}
        for begin, acted, stepped, written, restarted, rollout in self._steps:
            args = {"rollout": rollout}
            spans += [
                ("policy", begin, acted, args | shapes),
                ("env_step", acted, stepped, args | shapes),
                ("write", stepped, written, args),
            ]
            if restarted > written:
                spans.append(("env_reset", written, restarted, args))
        return sorted(spans, key=lambda span: span[1])

    def _trace(self) -> Trace:
        worker, pid = {"worker_idx": self._worker_idx}, os.getpid()
        where = {"pid": pid, "tid": self._thread}
        events: list[dict[str, Any]] = [
            {"ph": "M", "name": "process_name", "args": {"name": f"worker {self._worker_idx}"}, **where}
        ]
        for name, begin, end, args in self._all_spans():
            times = {"ts": self._microseconds(begin), "dur": (end - begin) * 1e6}
            events.append(
                {"ph": "X", "cat": "headrace", "name": name, **times, **where, "args": worker | args}
            )
        frames = {}
        if self._stacks is not None:
            frames = self._stacks.frames
            for at, frame in self._stacks.samples:
                events.append(
                    {
                        "ph": "P",
                        "name": "stack",
                        "ts": self._microseconds(at),
                        "sf": frame,
                        **where,
                        "args": worker,
                    }
                )
        if self._torch is not None:
            events += self._torch.events(self._base_ns)
        return Trace(events, self._base_ns, frames)

    def _microseconds(self, at: float) -> float:
        return (at - self._origin) * 1e6
