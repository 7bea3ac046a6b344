"""Running environments with a policy: inline and in worker processes.

Names are imported at first use: a worker process imports this package too, and needs neither tables nor their kernels.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.collectors.async_collector import AsyncCollector as AsyncCollector
    from headrace.collectors.batches.batch import Batch as Batch
    from headrace.collectors.collector import Collector as Collector
    from headrace.collectors.multi_collector import MultiCollector as MultiCollector
    from headrace.collectors.multi_step import MultiStep as MultiStep
    from headrace.collectors.profiling.config import ProfileConfig as ProfileConfig
    from headrace.collectors.ray.replay_shards import ReplayShards as ReplayShards
    from headrace.collectors.signatures import signature as signature
    from headrace.collectors.statistics import CollectorStatistics as CollectorStatistics
    from headrace.collectors.statistics import WorkerStatistics as WorkerStatistics
    from headrace.collectors.updates.numbering import PolicyVersion as PolicyVersion

_MODULES = {
    "AsyncCollector": "async_collector",
    "Batch": "batches.batch",
    "Collector": "collector",
    "CollectorStatistics": "statistics",
    "MultiCollector": "multi_collector",
    "MultiStep": "multi_step",
    "ProfileConfig": "profiling.config",
    "PolicyVersion": "updates.numbering",
    "ReplayShards": "ray.replay_shards",
    "WorkerStatistics": "statistics",
    "signature": "signatures",
}

__all__ = [
    "AsyncCollector",
    "Batch",
    "Collector",
    "CollectorStatistics",
    "MultiCollector",
    "MultiStep",
    "PolicyVersion",
    "ProfileConfig",
    "ReplayShards",
    "WorkerStatistics",
    "signature",
]


# Hidden from type checkers, to which every name would exist.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module 'headrace.collectors' has no attribute {name!r}")
        found = getattr(importlib.import_module(f"headrace.collectors.{_MODULES[name]}"), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted(__all__)
