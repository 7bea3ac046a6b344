"""Draws the pictures of docs/collectors.md: `python docs/pictures/collectors.py`.

The timelines are those of real runs of two workers and a learner that sleeps, so no two are equal. The other two
pictures show places and what goes from one to the next.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

try:
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.patches import FancyArrowPatch, Rectangle
except ImportError as error:
    raise ImportError('the pictures need matplotlib: pip install "headrace[plot]"') from error

import gymnasium
import numpy as np

import headrace as hr

INK, PALE, PLACE, PROCESS = "#333333", "#999999", "#9ecae1", "#f4f4f4"
# Colors of the weights 0, 1, 2, ...
VERSIONS = ("#d9d9d9", "#9ecae1", "#a1d99b", "#fdae6b", "#bcbddc", "#fa9fb5", "#c7e9b4")
STEPS, STEP_SECONDS, LEARN_SECONDS = 8, (0.030, 0.048), 0.25
SHOWN_SECONDS = 2.2


class Clocked(gymnasium.Env[np.ndarray, int]):
    """An environment whose steps take some time; its info tells when an observation was there."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def reset(
        self,
        *,
        seed: int | None = None,  # noqa: ARG002 - it draws nothing
        options: dict[str, Any] | None = None,  # noqa: ARG002 - it has none
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begins an episode."""
        return np.zeros(1, np.float32), {"clock": time.monotonic()}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:  # noqa: ARG002 - none matters
        """Sleeps."""
        time.sleep(self.seconds)
        return np.zeros(1, np.float32), 0.0, False, False, {"clock": time.monotonic()}


class Span(NamedTuple):
    """A time in which one process worked."""

    begin: float
    end: float
    version: int


def act(params: Mapping[str, np.ndarray], observation: np.ndarray) -> np.ndarray:
    """Actions of any weights."""
    return np.full(len(observation), int(params["w"][0]) % 2)


def main() -> None:
    """Writes one SVG for each picture beside this file."""
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "headrace", "font.size": 9})
    for picture in (batch, timelines, cascade):
        path = Path(__file__).parent / f"collectors_{picture.__name__}.svg"
        picture().savefig(path, metadata={"Date": None, "Creator": None})


def batch() -> Figure:
    """The way of a step from the environment to the learner."""
    figure, axes = _canvas(13.4, 4.4)
    _process(axes, 0.1, 0.3, 4.3, 3.6, "worker process")
    _box(axes, 0.4, 2.3, 1.6, 0.9, "policy")
    _box(axes, 0.4, 0.7, 1.6, 0.9, "environment")
    _arrow(axes, (1.5, 2.3), (1.5, 1.6))
    _arrow(axes, (0.9, 1.6), (0.9, 2.3))
    axes.text(1.6, 1.95, "action", va="center", color=PALE)
    axes.text(2.2, 3.0, "each step is written\nonce, in place", va="center", color=INK)
    _process(axes, 4.7, 0.3, 3.7, 3.6, "memory that both map")
    for row in range(5):
        y = 2.6 - 0.45 * row
        _box(
            axes, 5.1, y, 2.9, 0.4, "step" if row < 4 else "next observation", PLACE if row < 4 else "#ffffff"
        )
    _arrow(axes, (2.0, 1.15), (5.1, 1.15))
    axes.text(3.0, 0.9, "step", va="center", color=PALE)
    _process(axes, 8.7, 0.3, 4.6, 3.6, "the learner's process")
    _box(axes, 9.9, 1.2, 2.2, 1.2, "batch [n, T, ...]", PLACE)
    _arrow(axes, (8.0, 1.8), (9.9, 1.8))
    axes.text(
        8.85, 2.95, "a message says: 4 steps are there;\none copy makes the batch", va="center", color=INK
    )
    axes.text(9.9, 0.9, "yours: it never changes", va="center", color=INK)
    return figure


def timelines() -> Figure:
    """Two workers and a learner over time, for both kinds of collector."""
    figure = Figure(figsize=(8.6, 3.6))
    for place, sync in enumerate((True, False)):
        axes = figure.add_axes((0.09, 0.59 - 0.46 * place, 0.9, 0.34))
        lines = _run(sync=sync)
        start = min(line[0].begin for line in lines.values())
        for y, (name, spans) in enumerate(reversed(lines.items())):
            axes.text(-0.01, y + 0.4, name, ha="right", va="center", color=INK)
            shown = [span for span in spans if span.begin - start < SHOWN_SECONDS]
            for version, same in groupby(shown, key=lambda span: span.version):
                _spans(axes, y, start, version, list(same))
        axes.set(xlim=(0, SHOWN_SECONDS), ylim=(-0.1, 3), title=f"sync={sync}")
        axes.set_yticks([])
        axes.spines[["left", "right", "top"]].set_visible(False)
        if not place:
            axes.set_xticklabels([])
    axes.set_xlabel("seconds")
    return figure


def _run(*, sync: bool) -> dict[str, list[Span]]:
    """Steps and updates of one run; each update has the number that it publishes."""
    policy = hr.FunctionalPolicy(act, {"w": np.zeros(1, np.float32)})
    makes = [lambda seconds=seconds: Clocked(seconds) for seconds in STEP_SECONDS]
    clocks: list[list[float]] = [[], []]
    versions: list[list[int]] = [[], []]
    learner: list[Span] = []
    with hr.MultiCollector(
        makes,
        policy,
        sync=sync,
        frames_per_batch=STEPS * (2 if sync else 1),
        info_columns={"clock": hr.ArraySpec((), "float64")},
    ) as collector:
        for number in range(1, 6 if sync else 12):
            batch = collector.next(timeout=60)
            assert batch is not None
            for worker in (0, 1) if batch.worker_idx is None else (batch.worker_idx,):
                row = worker if sync else 0
                clocks[worker] += batch["clock"][row].tolist()
                versions[worker] += batch["policy_version"][row].tolist()
            begin = time.monotonic()
            time.sleep(LEARN_SECONDS)
            collector.update_policy_weights_(weights={"w": np.full(1, number, np.float32)})
            learner.append(Span(begin, time.monotonic(), number))
    lines = {"learner": learner}
    for worker in (0, 1):
        # A row has the time at which its observation was there, which is when the step before it had ended.
        steps = zip(clocks[worker][1:], versions[worker], strict=False)
        lines[f"worker {worker}"] = [Span(end - STEP_SECONDS[worker], end, version) for end, version in steps]
    return lines


def _spans(axes: Any, y: float, start: float, version: int, spans: list[Span]) -> None:
    for span in spans:
        color = VERSIONS[version % len(VERSIONS)]
        box = (span.begin - start, y), span.end - span.begin
        axes.add_patch(Rectangle(*box, 0.8, facecolor=color, edgecolor=INK, linewidth=0.4))
    middle = (spans[0].begin + spans[-1].end) / 2 - start
    axes.text(middle, y + 0.38, str(version), ha="center", va="center", color=INK, clip_on=True)


def cascade() -> Figure:
    """The way of weights from a learner to the workers."""
    figure, axes = _canvas(13.4, 4.6)
    _box(axes, 0.1, 2.7, 2.2, 1.0, "learner")
    _box(axes, 0.1, 0.5, 2.2, 1.0, "another publisher")
    _process(axes, 3.9, 0.2, 2.8, 4.0, "the collector's process")
    _box(axes, 4.2, 2.7, 2.2, 1.0, "check, number")
    _box(axes, 4.2, 0.5, 2.2, 1.0, "receiver")
    _arrow(axes, (2.3, 3.2), (4.2, 3.2))
    axes.text(0.1, 3.95, "update_policy_weights_()", color=INK)
    _arrow(axes, (2.3, 1.0), (4.2, 1.0))
    axes.text(0.1, 0.05, "register_scheme_receiver()", color=INK)
    _arrow(axes, (5.3, 1.5), (5.3, 2.7))
    _process(axes, 7.3, 0.2, 2.9, 4.0, "shared memory")
    _box(axes, 7.6, 2.7, 2.3, 0.6, "set 6")
    _box(axes, 7.6, 2.0, 2.3, 0.6, "set 7", PLACE)
    _box(axes, 7.6, 0.8, 2.3, 0.6, "number: 7", PLACE)
    _arrow(axes, (6.4, 3.2), (7.6, 2.4))
    for worker in range(3):
        y = 3.1 - 1.2 * worker
        _box(axes, 11.3, y, 2.0, 0.8, f"worker {worker}" if worker < 2 else "worker W - 1")
        _arrow(axes, (9.9, 2.3), (11.3, y + 0.5))
        _arrow(axes, (9.9, 1.1), (11.3, y + 0.3), PALE)
    return figure


def _canvas(width: float, height: float) -> tuple[Figure, Any]:
    figure = Figure(figsize=(0.62 * width, 0.62 * height))
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set(xlim=(0, width), ylim=(0, height))
    axes.axis("off")
    return figure, axes


def _process(axes: Any, x: float, y: float, width: float, height: float, name: str) -> None:
    axes.add_patch(Rectangle((x, y), width, height, facecolor=PROCESS, edgecolor=PALE, linewidth=0.8))
    axes.text(x + 0.15, y + height - 0.1, name, va="top", color=PALE)


def _box(
    axes: Any, x: float, y: float, width: float, height: float, text: str, color: str = "#ffffff"
) -> None:
    axes.add_patch(Rectangle((x, y), width, height, facecolor=color, edgecolor=INK, linewidth=0.8))
    axes.text(x + width / 2, y + height / 2, text, ha="center", va="center", color=INK)


def _arrow(axes: Any, start: tuple[float, float], end: tuple[float, float], color: str = INK) -> None:
    axes.add_patch(
        FancyArrowPatch(
            start, end, arrowstyle="-|>", mutation_scale=9, color=color, linewidth=0.9, shrinkA=0, shrinkB=0
        )
    )


if __name__ == "__main__":
    main()
