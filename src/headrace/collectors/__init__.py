"""Running environments with a policy: inline and in a worker process."""

from headrace.collectors.batch import Batch
from headrace.collectors.collector import Collector
from headrace.collectors.statistics import CollectorStatistics

__all__ = ["Batch", "Collector", "CollectorStatistics"]
