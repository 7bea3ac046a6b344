"""Where the time of collection went: a table, and a picture of a trace."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.cli import tables
from headrace.cli.figures import new_figure
from headrace.collectors import CollectorStatistics

# Maps each part to its events in a trace.
PARTS = {
    "environment": ("env_step", "env_reset"),
    "policy": ("policy",),
    "write": ("write",),
    "wait": ("wait",),
}
_COLORS = {"environment": "#4292c6", "policy": "#41ab5d", "write": "#fe9929", "wait": "#d9d9d9"}
_BINS = 200


def seconds_of(statistics: CollectorStatistics) -> dict[str, float]:
    """Returns the seconds of each part, of all collecting processes together."""
    return {
        "environment": statistics.env_seconds,
        "policy": statistics.policy_seconds,
        "write": statistics.write_seconds,
        "wait": statistics.wait_seconds,
    }


def show_table(seconds: Mapping[str, float], frames: int) -> None:
    """Prints a table: seconds, share, and microseconds of each frame.

    Args:
        seconds: of each part.
        frames: that were collected meanwhile.
    """
    whole = sum(seconds.values())
    rows = [
        (part, value, value / whole * 100 if whole else None, value / frames * 1e6 if frames else None)
        for part, value in seconds.items()
    ]
    tables.show("where the time went", rows, header=("", "seconds", "%", "us/frame"))


def shares(events: Iterable[Mapping[str, Any]], edges: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """Returns for each part the share of the time between two edges that it took.

    Args:
        events: complete events of one worker, in any order; those of one name do not overlap.
        edges: rising times in microseconds.

    >>> events = [{"name": "policy", "ts": 0.0, "dur": 3.0}, {"name": "env_step", "ts": 3.0, "dur": 1.0}]
    >>> found = shares(events, np.array([0.0, 2.0, 4.0]))
    >>> found["policy"].tolist(), found["environment"].tolist()
    ([1.0, 0.5], [0.0, 0.5])
    """
    spans: dict[str, list[tuple[float, float]]] = {}
    for event in events:
        spans.setdefault(event["name"], []).append((event["ts"], event["dur"]))
    widths = np.diff(edges)
    return {
        part: sum((np.diff(_taken(spans.get(name, []), edges)) for name in names), np.zeros(len(widths)))
        / widths
        for part, names in PARTS.items()
    }


def _taken(spans: Sequence[tuple[float, float]], at: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the time that spans took up to each moment."""
    if not spans:
        return np.zeros(len(at))
    begins, durations = np.array(sorted(spans)).T
    sums = np.cumsum(durations)
    moments = np.stack([begins, begins + durations], 1).ravel()
    taken: NDArray[np.float64] = np.interp(at, moments, np.stack([sums - durations, sums], 1).ravel())
    return taken


def draw(traces: Sequence[Path], path: Path) -> None:
    """Draws the shares of the parts over time, one row for each worker.

    Args:
        traces: the trace of each worker.
        path: the file; its suffix selects the format.

    Raises:
        ImportError: matplotlib is missing.
    """
    workers = [_events(trace) for trace in traces]
    figure = new_figure(9, 1.2 + 1.4 * len(workers), "the picture of a profile")
    rows = figure.subplots(len(workers), squeeze=False)[:, 0]
    for number, (axes, events) in enumerate(zip(rows, workers, strict=True)):
        begin = min(event["ts"] for event in events)
        end = max(event["ts"] + event["dur"] for event in events)
        edges = np.linspace(begin, end, _BINS + 1)
        found = shares(events, edges)
        milliseconds = (edges - begin) / 1e3
        axes.stackplot(
            milliseconds[:-1],
            *(found[part] * 100 for part in PARTS),
            labels=list(PARTS),
            colors=[_COLORS[part] for part in PARTS],
            step="post",
        )
        axes.set(
            xlim=(0, milliseconds[-2]),
            ylim=(0, 100),
            ylabel=f"worker {number}\n% of time",
            yticks=(0, 50, 100),
        )
    rows[-1].set_xlabel("milliseconds")
    handles, labels = rows[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(PARTS), frameon=False)
    figure.savefig(path)


def _events(trace: Path) -> list[dict[str, Any]]:
    events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    return [event for event in events if event.get("cat") == "headrace"]
