"""A trace of collection as Chrome trace JSON, which chrome://tracing and ui.perfetto.dev show."""

# Rules: collectors CH3

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


class Trace:
    """The recorded rollouts of one worker.

    Complete events are named `rollout`, `policy`, `env_step`, `env_reset`, `write`, `weights` and `wait`. Their
    `args` have `worker_idx` and `rollout`, the number of the rollout from 0.

    Args:
        events: in the Trace Event Format; times in microseconds.
        base_ns: time of microsecond 0, in nanoseconds since 1970.
        stack_frames: of sampled stacks, as the format has them.

    Attributes:
        events: the events.

    >>> trace = Trace([{"ph": "X", "name": "policy", "ts": 3.0, "dur": 2.0, "pid": 1, "tid": 1, "args": {}}], 0)
    >>> [(event["name"], event["dur"]) for event in trace.events]
    [('policy', 2.0)]
    """

    def __init__(
        self, events: Sequence[dict[str, Any]], base_ns: int, stack_frames: Mapping[str, Any] | None = None
    ) -> None:
        self.events = list(events)
        self._base_ns = base_ns
        self._stack_frames = dict(stack_frames or {})

    def export(self, path: str | os.PathLike[str]) -> None:
        """Writes the trace to a file, completely or not at all. An existing file is replaced.

        Raises:
            OSError: the file cannot be written.
        """
        content = {
            "displayTimeUnit": "ms",
            "baseTimeNanoseconds": self._base_ns,
            "traceEvents": self.events,
            "stackFrames": self._stack_frames,
        }
        target = Path(path)
        partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
        try:
            partial.write_text(json.dumps(content, default=str), encoding="utf-8")
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)
