"""The live page of a replay, its statistics as JSON, and its metrics for Prometheus."""

from headrace.monitor.monitor import Monitor, serve

__all__ = ["Monitor", "serve"]
