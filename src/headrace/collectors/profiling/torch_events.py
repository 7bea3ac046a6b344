"""Events of torch's own profiler, which runs along with a torch policy."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import torch

from headrace.collectors.profiling.config import ProfileConfig


class TorchEvents:
    """Records the operations of torch in the thread that makes it.

    Args:
        config: tells what torch records.
    """

    def __init__(self, config: ProfileConfig) -> None:
        kinds = {"cpu": torch.profiler.ProfilerActivity.CPU}
        if torch.cuda.is_available():
            kinds["cuda"] = torch.profiler.ProfilerActivity.CUDA
        self._profiler = torch.profiler.profile(
            activities=[kinds[name] for name in config.activities if name in kinds],
            record_shapes=config.record_shapes,
            profile_memory=config.profile_memory,
            with_stack=config.with_stack,
            with_flops=config.with_flops,
        )
        self._profiler.start()

    def stop(self) -> None:
        """Ends the recording."""
        self._profiler.stop()

    def events(self, base_ns: int) -> list[dict[str, Any]]:
        """Returns what was recorded until `stop`; microsecond 0 is `base_ns`, in nanoseconds since 1970."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "torch.json"
            self._profiler.export_chrome_trace(str(path))
            trace = json.loads(path.read_text(encoding="utf-8"))
        shift = (trace.get("baseTimeNanoseconds", 0) - base_ns) / 1000
        events: list[dict[str, Any]] = trace["traceEvents"]
        for event in events:
            if "ts" in event:
                event["ts"] += shift
        return events
