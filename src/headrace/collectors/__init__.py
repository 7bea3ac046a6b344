"""Running environments with a policy: inline and in a worker process."""

from headrace.collectors.async_collector import AsyncCollector
from headrace.collectors.batch import Batch
from headrace.collectors.collector import Collector
from headrace.collectors.signatures import signature
from headrace.collectors.statistics import CollectorStatistics

__all__ = ["AsyncCollector", "Batch", "Collector", "CollectorStatistics", "signature"]
