"""The statistics of a sample as JSON: one record for the page, for programs and for `headrace top`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import msgspec

from headrace.monitor.rates import BYTE_COUNTERS, SAMPLE_COUNTERS, changes_over, queue_names, rates_over
from headrace.monitor.recorder import KEPT_SAMPLES, SECONDS_BETWEEN_SAMPLES, Recorder, Sample
from headrace.server.statistics import ConnectionCounts
from headrace.spec import Signature
from headrace.statistics import ReplayStatistics, TableRates, TableStatistics

_SPANS = {"now": 5.0, "ten_minutes": (KEPT_SAMPLES - 1) * SECONDS_BETWEEN_SAMPLES}
"""Time spans of the rates in a record, in seconds."""


def to_json(value: Any) -> bytes:
    """Returns a value as JSON; numbers that are not finite become null.

    >>> to_json({"max_diff": float("inf")})
    b'{"max_diff":null}'
    """
    return msgspec.json.encode(value)


def record_of(recorder: Recorder, signatures: Mapping[str, Signature | None], now: float) -> dict[str, Any]:
    """Returns the newest statistics.

    Args:
        recorder: has the samples.
        signatures: of each replay, by name; None if it is unknown.
        now: the present time on the monotonic clock.
    """
    samples = recorder.since(0)
    newest = samples[-1]
    replays = {}
    for name, signature in signatures.items():
        record = recorder.newest_record(name)
        replays[name] = {
            "state": newest.problems.get(name, "open"),
            "columns": None if signature is None else _columns(signature),
            "store": None if record is None else asdict(record.store),
            "tables": {} if record is None else _tables(samples, name, record),
        }
    return {
        "number": newest.number,
        "age_seconds": round(now - newest.seconds, 3),
        "recorded_seconds": round(newest.seconds - samples[0].seconds, 1),
        "replays": replays,
        "queues": {name: _queue(samples, name) for name in queue_names(samples)},
        "server": _server(samples),
        "collector": None if newest.collector is None else asdict(newest.collector),
    }


def _columns(signature: Signature) -> dict[str, str]:
    return {name: f"{spec.dtype}{list(spec.shape)}" for name, spec in signature.columns.items()}


def _tables(samples: list[Sample], replay: str, record: ReplayStatistics) -> dict[str, Any]:
    spans = {span: rates_over(samples, replay, seconds) for span, seconds in _SPANS.items()}
    return {
        name: {
            **asdict(table),
            "gate": _gate(table),
            "rates": {span: _rates(rates.get(name)) for span, rates in spans.items()},
        }
        for name, table in record.tables.items()
    }


def _queue(samples: list[Sample], name: str) -> dict[str, Any]:
    newest = samples[-1]
    record = next(sample.queues[name] for sample in reversed(samples) if name in sample.queues)
    return {
        "state": newest.problems.get(name, "open"),
        **msgspec.structs.asdict(record),
        "rates": {
            span: changes_over(samples, lambda sample: sample.queues.get(name), SAMPLE_COUNTERS, seconds)
            for span, seconds in _SPANS.items()
        },
    }


def _server(samples: list[Sample]) -> dict[str, Any] | None:
    newest = samples[-1].server
    if newest is None:
        return None
    return {
        **{field: getattr(newest, field) for field in ConnectionCounts.__dataclass_fields__},
        "rates": {
            span: changes_over(samples, lambda sample: sample.server, BYTE_COUNTERS, seconds)
            for span, seconds in _SPANS.items()
        },
    }


def _rates(rates: TableRates | None) -> dict[str, float] | None:
    return None if rates is None else asdict(rates)


def _gate(table: TableStatistics) -> dict[str, Any]:
    """Returns where the table is between the bounds of its rate limiter.

    `difference` is inserts * samples_per_insert - samples. At `min_diff` samples wait, at `max_diff` inserts do.
    Limiters with `is_bounded` false have no such bounds.
    """
    return {
        "difference": table.inserts * table.samples_per_insert - table.samples,
        "is_bounded": math.isfinite(table.min_diff) and math.isfinite(table.max_diff),
        "items_missing": max(0, table.min_size - table.size),
    }
