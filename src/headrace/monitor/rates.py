"""Rates between samples: over a time span for numbers, and from sample to sample for plots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from headrace.monitor.recorder import Sample
from headrace.statistics import ReplayStatistics, TableRates

_Points = dict[str, list[float | None]]
_FIELDS = ("inserts", "samples", "size")


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
        "collector": _collector_series(samples),
    }


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
