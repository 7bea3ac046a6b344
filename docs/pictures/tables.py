"""Draws the pictures of docs/replay.md: `python docs/pictures/tables.py`.

Items are boxes, a line is a table at one moment; what is drawn is what tables, selectors and rate limiters do.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

try:
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.patches import Polygon, Rectangle
except ImportError as error:
    raise ImportError('the pictures need matplotlib: pip install "headrace[plot]"') from error

import numpy as np

import headrace as hr

HELD, CHOSEN, GONE, ROW = "#9ecae1", "#fdae6b", "#ffffff", "#e5e5e5"
INK, PALE = "#333333", "#aaaaaa"
SIGNATURE = hr.Signature.like({"x": 0})
EVERY = hr.selectors.Uniform(replacement=False)
FIFO = hr.selectors.Fifo()
SIZE = 1000


def main() -> None:
    """Writes one SVG for each picture beside this file."""
    # Text stays text, and nothing depends on the day or the run: a picture changes when its table does.
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "headrace", "font.size": 9})
    for picture in (queue, remover, prioritized, corridor, one_store):
        path = Path(__file__).parent / f"tables_{picture.__name__}.svg"
        picture().savefig(path, metadata={"Date": None, "Creator": None})


def queue() -> Figure:
    """A queue of three: what goes in, what comes out, and who waits."""
    lines: list[tuple[str, list[int], list[int], str]] = []
    with hr.Replay(SIGNATURE, [hr.Table.queue("t", 3)]) as replay, replay.writer() as writer:
        inside: list[int] = []

        def insert(*items: int) -> None:
            for item in items:
                writer.append({"x": item})
                writer.create_item("t", 1)
            inside.extend(items)
            note(f"insert {', '.join(map(str, items))}", [])

        def sample(count: int) -> None:
            found = replay.sample("t", count, timeout=0).data["x"].tolist()
            assert found == inside[:count]
            del inside[:count]
            note(f"sample {count}", found)

        def note(event: str, out: list[int]) -> None:
            there = len(replay.table("t"))
            waiting = ", ".join(map(str, inside[there:]))
            told = f"{waiting} waits outside" if waiting else "" if there else "sampling waits"
            lines.append((event, inside[:there], out, told))

        insert(0, 1, 2)
        insert(3)
        sample(1)
        sample(2)
        sample(1)
    figure, axes = _canvas(12.2, len(lines), x=-2.6)
    for line, (event, there, out, told) in enumerate(lines):
        y = -line * 1.1
        axes.text(-2.5, y + 0.4, event, va="center", color=INK)
        for place, item in enumerate(out):
            _box(axes, place, y, str(item), CHOSEN)
        for place, item in enumerate(there):
            _box(axes, 3 + place, y, str(item), HELD)
        axes.text(6.2, y + 0.4, told, va="center", color=INK)
    axes.text(0, 1.15, "came out", color=PALE)
    axes.text(3, 1.15, "in the table", color=PALE)
    return figure


def remover() -> Figure:
    """Five items into tables of three, with three removers."""
    priorities = [4.0, 1.0, 9.0, 2.0, 5.0]
    removers = {"Fifo()": FIFO, "Lifo()": hr.selectors.Lifo(), "MinHeap()": hr.selectors.MinHeap()}
    figure, axes = _canvas(11.4, len(removers) + 1, x=-2.6)
    _line(axes, 0, "item: priority", [f"{x}: {p:g}" for x, p in enumerate(priorities)], [ROW] * 5)
    for line, (name, each) in enumerate(removers.items(), 1):
        table = hr.Table("t", sampler=EVERY, remover=each, max_size=3)
        with hr.Replay(SIGNATURE, [table], seed=0) as replay, replay.writer() as writer:
            for x, priority in enumerate(priorities):
                writer.append({"x": x})
                writer.create_item("t", 1, priority=priority)
            kept = set(replay.sample("t", 3).data["x"].tolist())
        colors = [HELD if x in kept else GONE for x in range(5)]
        _line(axes, line, name, [str(x) for x in range(5)], colors)
    axes.text(5.3, -1.1 + 0.4, "blue: still there", va="center", color=PALE)
    return figure


def prioritized() -> Figure:
    """How likely each item is, for three exponents: boxes as wide as their probabilities."""
    priorities, width = [2.0, 3.0, 5.0, 10.0], 11.0
    figure, axes = _canvas(width + 3.6, 3, x=-3.4)
    for line, exponent in enumerate([0.0, 0.5, 1.0]):
        table = hr.Table(
            "t", sampler=hr.selectors.Prioritized(exponent), remover=FIFO, max_size=len(priorities)
        )
        with hr.Replay(SIGNATURE, [table], seed=0) as replay, replay.writer() as writer:
            for x, priority in enumerate(priorities):
                writer.append({"x": x})
                writer.create_item("t", 1, priority=priority)
            batch = replay.sample("t", SIZE)
            share = dict(zip(batch.data["x"].tolist(), batch.info.probabilities.tolist(), strict=True))
        axes.text(-3.3, -line * 1.1 + 0.4, f"Prioritized({exponent:g})", va="center", color=INK)
        x = 0.0
        for item, priority in enumerate(priorities):
            wide = width * share[item]
            _box(axes, x, -line * 1.1, f"{share[item]:.0%}", HELD, wide)
            if line == 0:
                axes.text(x + wide / 2, 1.15, f"priority {priority:g}", ha="center", color=PALE)
            x += wide
    return figure


def corridor() -> Figure:
    """Inserts against samples under SampleToInsertRatio, and the path of a run within."""
    limiter = hr.rate_limiters.SampleToInsertRatio(2, min_size_to_sample=5, error_buffer=6)
    figure = Figure(figsize=(4.6, 3.4))
    axes = figure.add_axes((0.12, 0.14, 0.84, 0.82))
    most = 20
    inserts = np.arange(0, most + 1)
    least = np.maximum(0, inserts * limiter.samples_per_insert - limiter.max_diff)
    sampled = inserts[inserts >= limiter.min_size]
    greatest = sampled * limiter.samples_per_insert - limiter.min_diff
    low, high = zip(inserts, least, strict=True), zip(sampled[::-1], greatest[::-1], strict=True)
    outline = [*low, *high, (limiter.min_size, 0)]
    axes.add_patch(Polygon(outline, facecolor=HELD, alpha=0.5, edgecolor="none"))
    axes.plot([limiter.min_size, *sampled], [0, *greatest], color=INK, linewidth=1)
    axes.plot(inserts, least, color=INK, linewidth=1)
    axes.plot(*_path(limiter, most), color="#e6550d", linewidth=1.4)
    axes.text(4, 20, "the learner waits", color=INK)
    axes.text(12.6, 4, "the writer waits", color=INK)
    axes.set(xlim=(0, most), ylim=(-0.6, 36), xlabel="inserts", ylabel="samples")
    axes.set_xticks(range(0, most + 1, 5))
    return figure


def _path(limiter: Any, most: int) -> tuple[list[int], list[int]]:
    """A writer in a hurry, then a learner in a hurry, and so on: each goes on until it must wait."""
    inserts, samples = [0], [0]
    while inserts[-1] < most:
        while inserts[-1] < most and limiter.can_insert(inserts[-1], samples[-1], 0, 1):
            inserts.append(inserts[-1] + 1)
            samples.append(samples[-1])
        while inserts[-1] < most and limiter.can_sample(inserts[-1], samples[-1], 0, 1):
            inserts.append(inserts[-1])
            samples.append(samples[-1] + 1)
    return inserts, samples


def one_store() -> Figure:
    """Two tables over the rows of one episode; the rows that no item needs are crossed."""
    rows, window = 12, 4
    tables = [
        hr.Table("newest", sampler=EVERY, remover=FIFO, max_size=3),
        hr.Table("windows", sampler=EVERY, remover=FIFO, max_size=2),
    ]
    rules = [hr.ItemRule("newest", 1), hr.ItemRule("windows", window, stride=3)]
    with hr.Replay(SIGNATURE, tables, seed=0) as replay:
        with replay.writer(items=rules) as writer:
            for x in range(rows):
                writer.append({"x": x})
        newest = sorted(replay.sample("newest", 3).data["x"].tolist())
        windows = sorted(replay.sample("windows", 2).data["x"].tolist())
    needed = {*newest, *(row for each in windows for row in each)}
    figure, axes = _canvas(rows + 3.4, 4, x=-3.0)
    colors = [ROW if row in needed else GONE for row in range(rows)]
    _line(axes, 0, "rows", [str(row) for row in range(rows)], colors)
    axes.text(-2.9, -1.1 + 0.4, '"newest"', va="center", color=INK)
    for row in newest:
        _box(axes, row, -1.1, str(row), HELD)
    for line, each in enumerate(windows, 2):
        axes.text(-2.9, -line * 1.1 + 0.4, '"windows"', va="center", color=INK)
        _box(axes, each[0], -line * 1.1, f"{each[0]} to {each[-1]}", HELD, len(each))
    return figure


def _canvas(width: float, lines: int, x: float) -> tuple[Figure, Any]:
    figure = Figure(figsize=(0.36 * width, 0.33 * (lines + 0.7)))
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set(xlim=(x, x + width), ylim=(-(lines - 1) * 1.1 - 0.2, 1.6))
    axes.axis("off")
    return figure, axes


def _line(axes: Any, line: int, name: str, texts: Sequence[str], colors: Sequence[str]) -> None:
    axes.text(-2.5 if len(texts) < 10 else -2.9, -line * 1.1 + 0.4, name, va="center", color=INK)
    for place, (text, color) in enumerate(zip(texts, colors, strict=True)):
        _box(axes, place, -line * 1.1, text, color)
        if color == GONE:
            axes.plot([place, place + 1], [-line * 1.1, -line * 1.1 + 0.8], color=INK, linewidth=0.8)


def _box(axes: Any, x: float, y: float, text: str, color: str, width: float = 1.0) -> None:
    axes.add_patch(Rectangle((x, y), width, 0.8, facecolor=color, edgecolor=INK, linewidth=0.8))
    axes.text(x + width / 2, y + 0.38, text, ha="center", va="center", color=INK)


if __name__ == "__main__":
    main()
