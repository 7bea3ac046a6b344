"""Rates between samples: over a time span for numbers, and from sample to sample for plots."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from headrace.monitor.recorder import Sample
from headrace.statistics import ReplayStatistics, TableRates

_Points = dict[str, list[float | None]]
_FIELDS = ("inserts", "samples", "size")
SAMPLE_COUNTERS = ("samples_received", "samples_delivered")
"""Counters of a queue of which rates are shown."""
BYTE_COUNTERS = ("bytes_in", "bytes_out")
"""Counters of a server of which rates are shown."""


def rates_over(samples: Sequence[Sample], replay: str, seconds: float) -> Mapping[str, TableRates]:
    """Returns the rates of each table over the newest `seconds` of the samples; empty before the second record.

    Args:
        samples: in order.
        replay: name of the replay.
        seconds: the time span; shorter if the samples do not reach back so far.
    """
    records = [sample.replays[replay] for sample in samples if replay in sample.replays]
    if not records:
        return {}
    newest = records[-1]
    # Half a second more, because samples come a little later than a second after each other.
    first = next(record for record in records if newest.seconds - record.seconds <= seconds + 0.5)
    return _rates(first, newest) or {}


def _rates(earlier: ReplayStatistics, now: ReplayStatistics) -> Mapping[str, TableRates] | None:
    if now.seconds <= earlier.seconds or set(now.tables) != set(earlier.tables):
        return None
    return now.rates_since(earlier)


def changes_over(
    samples: Sequence[Sample], record_in: Callable[[Sample], Any], fields: Sequence[str], seconds: float
) -> dict[str, float] | None:
    """Returns the changes per second of some counters over the newest `seconds`; None before the second record.

    Args:
        samples: in order.
        record_in: returns the record of a sample that has the counters; None for a sample without.
        fields: the counters.
        seconds: the time span; shorter if the samples do not reach back so far.
    """
    known = [(sample.seconds, record) for sample in samples if (record := record_in(sample)) is not None]
    if not known:
        return None
    now, newest = known[-1]
    then, first = next(each for each in known if now - each[0] <= seconds + 0.5)
    return None if now <= then else _changes(first, newest, fields, now - then)


def _changes(before: Any, now: Any, fields: Sequence[str], passed: float) -> dict[str, float]:
    return {field: (getattr(now, field) - getattr(before, field)) / passed for field in fields}


def series(samples: Sequence[Sample]) -> dict[str, Any]:
    """Returns what plots show, as JSON. Rates are those since the sample before; None where they are unknown.

    Args:
        samples: in order. The first is only compared with.
    """
    shown = samples[1:]
    replays: dict[str, dict[str, _Points]] = {
        name: {table: {field: [] for field in _FIELDS} for table in record.tables}
        for name, record in _newest_records(samples).items()
    }
    for before, now in pairwise(samples):
        for name, tables in replays.items():
            _add_points(tables, before.replays.get(name), now.replays.get(name))
    return {
        "number": samples[-1].number if samples else 0,
        "count": len(shown),
        "seconds_ago": [round(samples[-1].seconds - sample.seconds, 2) for sample in shown],
        "replays": replays,
        "queues": {name: _queue_series(samples, name) for name in queue_names(samples)},
        "server": _counter_series(samples, lambda sample: sample.server, BYTE_COUNTERS),
        "collector": _collector_series(samples),
    }


def queue_names(samples: Iterable[Sample]) -> list[str]:
    """Returns the names of the queues in any sample."""
    return list(dict.fromkeys(name for sample in samples for name in sample.queues))


def _queue_series(samples: Sequence[Sample], name: str) -> _Points:
    sizes = [sample.queues[name].size if name in sample.queues else None for sample in samples[1:]]
    return {
        **_counter_series(samples, lambda sample: sample.queues.get(name), SAMPLE_COUNTERS),
        "size": list(sizes),
    }


def _counter_series(
    samples: Sequence[Sample], record_in: Callable[[Sample], Any], fields: Sequence[str]
) -> _Points:
    """Returns the changes per second of counters, from sample to sample."""
    points: _Points = {field: [] for field in fields}
    for before, now in pairwise(samples):
        changes = changes_over([before, now], record_in, fields, now.seconds - before.seconds)
        for field, values in points.items():
            values.append(None if changes is None else _rounded(changes[field]))
    return points


def _newest_records(samples: Iterable[Sample]) -> dict[str, ReplayStatistics]:
    return {name: record for sample in samples for name, record in sample.replays.items()}


def _add_points(
    tables: dict[str, _Points], before: ReplayStatistics | None, now: ReplayStatistics | None
) -> None:
    """Adds one point to each list of each table of a replay."""
    rates = _rates(before, now) if before is not None and now is not None else None
    for name, points in tables.items():
        rate = rates[name] if rates is not None and name in rates else None
        state = now.tables.get(name) if now is not None else None
        points["inserts"].append(None if rate is None else _rounded(rate.inserts))
        points["samples"].append(None if rate is None else _rounded(rate.samples))
        points["size"].append(None if state is None else state.size)


def _collector_series(samples: Sequence[Sample]) -> dict[str, list[float | None]]:
    frames: list[float | None] = []
    lags: list[float | None] = []
    returns: list[float | None] = []
    for before, now in pairwise(samples):
        earlier, record, passed = before.collector, now.collector, now.seconds - before.seconds
        if earlier is None or record is None or passed <= 0:
            frames.append(None)
        else:
            frames.append(_rounded((record.frames - earlier.frames) / passed))
        lags.append(_rounded(None if record is None else record.lag_mean))
        returns.append(_rounded(None if record is None else record.episode_return_mean))
    return {"frames": frames, "lag": lags, "returns": returns}


def _rounded(value: float | None) -> float | None:
    # Four digits are more than a plot shows, and keep the answer small.
    return None if value is None else float(f"{value:.4g}")
