"""The newest statistics as metrics for Prometheus.

Names follow its conventions (https://prometheus.io/docs/practices/naming/): base units, and `_total` for counters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headrace.monitor.rates import queue_names
from headrace.monitor.recorder import Recorder

if TYPE_CHECKING:
    from headrace.collectors import CollectorStatistics

_LABELS = ("replay", "table")


@dataclass(frozen=True)
class _Series:
    """A metric made of one field of a record.

    Attributes:
        name: after the prefix; counters get `_total` from the client library.
        field: of the record.
        text: the help line.
        kind: class of the metric.
    """

    name: str
    field: str
    text: str
    kind: type[CounterMetricFamily | GaugeMetricFamily] = GaugeMetricFamily

    def metric(self, prefix: str, labels: tuple[str, ...] = ()) -> Any:
        return self.kind(f"headrace_{prefix}_{self.name}", self.text, labels=labels)


_COUNTER = CounterMetricFamily
_OF_TABLE = (
    _Series("items", "size", "Items in the table."),
    _Series("max_items", "max_size", "Largest number of items."),
    _Series("inserts", "inserts", "Items inserted since the last reset of the table.", _COUNTER),
    _Series("samples", "samples", "Items sampled since the last reset of the table.", _COUNTER),
    _Series("deletes", "deletes", "Items removed since the last reset of the table.", _COUNTER),
    _Series("resets", "resets", "Resets of the table.", _COUNTER),
    _Series("unique_samples", "unique_samples", "Items sampled at least once.", _COUNTER),
    _Series("priority_updates", "updates", "Priorities that were set.", _COUNTER),
    _Series("ignored_priority_updates", "ignored_updates", "Priorities of items that were gone.", _COUNTER),
    _Series("ignored_deletes", "ignored_deletes", "Deletes of items that were gone.", _COUNTER),
    _Series("pending_inserts", "pending_inserts", "Items that wait for the rate limiter."),
    _Series("waiting_samples", "waiting_samples", "Batches that wait for the rate limiter."),
    _Series(
        "insert_wait_seconds", "seconds_waiting_inserts", "Time that inserts waited; ended waits.", _COUNTER
    ),
    _Series(
        "sample_wait_seconds", "seconds_waiting_samples", "Time that samples waited; ended waits.", _COUNTER
    ),
    _Series("longest_insert_wait_seconds", "longest_waiting_insert", "Time the oldest insert waits so far."),
    _Series("longest_sample_wait_seconds", "longest_waiting_sample", "Time the oldest sample waits so far."),
    _Series("target_samples_per_insert", "samples_per_insert", "Target of the rate limiter."),
    _Series("min_items_to_sample", "min_size", "Items at which the rate limiter allows samples."),
    _Series("min_difference", "min_diff", "Lower bound of inserts * target - samples."),
    _Series("max_difference", "max_diff", "Upper bound of inserts * target - samples."),
)
_OF_STORE = (
    _Series("rows", "rows", "Rows in the pages in use."),
    _Series("pages", "pages", "Pages in use."),
    _Series("free_pages", "free_pages", "Pages that were in use before and are free."),
    _Series("bytes", "bytes", "Bytes of the rows in use, metadata included."),
    _Series("capacity_rows", "capacity", "Rows that fit; absent without a limit."),
)
_OF_QUEUE = (
    _Series("samples", "size", "Samples waiting."),
    _Series("batches", "index", "Batches handed out.", _COUNTER),
    _Series("samples_received", "samples_received", "Samples that came in.", _COUNTER),
    _Series("samples_delivered", "samples_delivered", "Samples handed out.", _COUNTER),
    _Series("blocked_sends", "blocked_sends", "Sends that had to wait for a place.", _COUNTER),
    _Series("senders", "senders", "Open connections of senders."),
    _Series(
        "replaced_buffers", "buffers_replaced", "Batches whose arrays were kept by a consumer.", _COUNTER
    ),
)
_OF_SERVER = (
    _Series("connections", "connections", "Clients now."),
    _Series("accepted_connections", "connections_total", "Clients since the start.", _COUNTER),
    _Series("rejected_handshakes", "rejected_handshakes", "Handshakes that failed.", _COUNTER),
    _Series(
        "protocol_errors", "protocol_errors", "Connections ended by bytes of another protocol.", _COUNTER
    ),
    _Series("truncated_frames", "truncated_frames", "Connections that ended within a message.", _COUNTER),
    _Series("received_bytes", "bytes_in", "Bytes from clients.", _COUNTER),
    _Series("sent_bytes", "bytes_out", "Bytes to clients.", _COUNTER),
    _Series("uptime_seconds", "seconds_up", "Time since the start."),
    _Series("checkpoints", "checkpoints", "Saves of all replays.", _COUNTER),
    _Series("failed_checkpoints", "failed_checkpoints", "Saves that left out some replays.", _COUNTER),
    _Series(
        "checkpoint_age_seconds", "checkpoint_age", "Time since the newest save; absent before the first."
    ),
    _Series("checkpoint_seconds", "checkpoint_seconds", "Time that the newest save took."),
)
_OF_COLLECTOR = (
    _Series("frames", "frames", "Frames handed out.", _COUNTER),
    _Series("batches", "batches", "Batches handed out.", _COUNTER),
    _Series("episodes", "episodes", "Episodes that ended.", _COUNTER),
    _Series("discarded_frames", "frames_discarded", "Frames lost by a failure or at the end.", _COUNTER),
    _Series("worker_restarts", "restarts", "Workers started again.", _COUNTER),
    _Series("lag_exceeded_batches", "lag_exceeded", "Batches with too old a policy.", _COUNTER),
    _Series("env_seconds", "env_seconds", "Time in environments, all workers together.", _COUNTER),
    _Series("policy_seconds", "policy_seconds", "Time in the policy, all workers together.", _COUNTER),
    _Series("write_seconds", "write_seconds", "Time of storing steps, all workers together.", _COUNTER),
    _Series(
        "wait_seconds", "wait_seconds", "Time of waiting for the learner, all workers together.", _COUNTER
    ),
    _Series("workers_alive", "workers_alive", "Processes that collect."),
    _Series("episode_return_mean", "episode_return_mean", "Mean return of the last 100 episodes."),
    _Series("episode_length_mean", "episode_length_mean", "Mean length of the last 100 episodes, in steps."),
    _Series("policy_lag_min", "lag_min", "Smallest policy lag of the last batch, in versions."),
    _Series("policy_lag_mean", "lag_mean", "Mean policy lag of the last batch, in versions."),
    _Series("policy_lag_max", "lag_max", "Largest policy lag of the last batch, in versions."),
)
_OF_WORKER = (
    _Series("alive", "alive", "1 while the process of the worker runs."),
    _Series("frames", "frames", "Frames of the worker.", _COUNTER),
    _Series("restarts", "restarts", "How often the worker was started again.", _COUNTER),
    _Series("policy_version", "policy_version", "Newest policy version among its rows; -1 before the first."),
    _Series("last_step_age_seconds", "last_step_age", "Time since its last step."),
)


class Metrics(Collector):
    """Gives the newest sample to `prometheus_client`.

    Args:
        recorder: has the samples.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def describe(self) -> Iterator[Metric]:
        """Returns no names: they are not checked against other collectors."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Returns the metrics of the newest sample. A replay that did not answer has only `headrace_replay_up` 0."""
        sample = self._recorder.latest
        up = GaugeMetricFamily("headrace_replay_up", "1 while the replay answers.", labels=("replay",))
        queues_ever = queue_names(self._recorder.since(0))
        for name in (*sample.replays, *(each for each in sample.problems if each not in queues_ever)):
            up.add_metric((name,), float(name in sample.replays))
        yield up
        tables = [
            ((name, table), record)
            for name, replay in sample.replays.items()
            for table, record in replay.tables.items()
        ]
        yield from _metrics("table", _OF_TABLE, _LABELS, tables)
        stores = [((name,), replay.store) for name, replay in sample.replays.items()]
        yield from _metrics("store", _OF_STORE, ("replay",), stores)
        if queues_ever:
            queues = [((name,), record) for name, record in sample.queues.items()]
            yield from _metrics("queue", _OF_QUEUE, ("queue",), queues)
        if sample.server is not None:
            yield from _metrics("server", _OF_SERVER, (), [((), sample.server)])
        if sample.collector is not None:
            yield from _collector_metrics(sample.collector)


def _collector_metrics(collector: CollectorStatistics) -> Iterator[Metric]:
    yield from _metrics("collector", _OF_COLLECTOR, (), [((), collector)])
    workers = [((str(worker.worker_idx),), worker) for worker in collector.workers]
    if workers:
        yield from _metrics("worker", _OF_WORKER, ("worker",), workers)


def _metrics(
    prefix: str,
    series: tuple[_Series, ...],
    labels: tuple[str, ...],
    records: Sequence[tuple[tuple[str, ...], Any]],
) -> Iterator[Metric]:
    for each in series:
        metric = each.metric(prefix, labels)
        for values, record in records:
            value = getattr(record, each.field)
            if value is not None:
                metric.add_metric(values, float(value))
        yield metric
