"""Saving and loading a replay, against writing and reading the same bytes; and how long a sample waits meanwhile."""

from __future__ import annotations

import mmap
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import headrace as hr
from bench.case import Case, contest_case
from bench.measure import Contest, Goal, Plan, Row, Run, Spread
from bench.steps import filled, table

_FRAME = (84, 84)


def cases() -> list[Case]:
    found = []
    for name, prepare in (("frames", _frames), ("small steps", _small)):
        found += [
            contest_case(f"checkpoints/save {name}", _saving(prepare), Goal(ratio=0.85)),
            contest_case(f"checkpoints/load {name}", _loading(prepare), Goal(ratio=0.85)),
            Case(f"checkpoints/stall {name}", _stalls(name, prepare)),
        ]
    return found


@contextmanager
def _frames(plan: Plan) -> Iterator[hr.Replay]:
    size = plan.size(40_000, 512)
    signature = hr.Signature.like({"frame": np.zeros(_FRAME, np.uint8), "action": 0})
    frame = np.arange(np.prod(_FRAME), dtype=np.uint8).reshape(_FRAME)
    with hr.Replay(signature, [table(size)], seed=0) as replay:
        with replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
            for number in range(size):
                frame[0, :4] = np.frombuffer(np.uint32(number).tobytes(), np.uint8)
                writer.append({"frame": frame, "action": number})
        yield replay


@contextmanager
def _small(plan: Plan) -> Iterator[hr.Replay]:
    with filled(plan.size(2_000_000, 512)) as replay:
        yield replay


def _saving(prepare: Any) -> Any:
    @contextmanager
    def contest(plan: Plan) -> Iterator[Contest]:
        with prepare(plan) as replay, tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            nbytes = _size_of(replay.save(place / "ours"))
            content = _bytes_of(replay.save(place / "ours", keep=1))
            yield Contest(
                ours=_saves(replay, place / "ours"),
                limit=_writes(content, place / "limit"),
                limit_name="tofile + fsync",
                verify=lambda path: _check(replay, path),
                per_call=nbytes / 1e9,
                unit="GB/s",
            )

    return contest


def _loading(prepare: Any) -> Any:
    @contextmanager
    def contest(plan: Plan) -> Iterator[Contest]:
        with prepare(plan) as replay, tempfile.TemporaryDirectory() as folder:
            path = replay.save(folder)
            yield Contest(
                ours=_loads(path),
                limit=_reads(path),
                limit_name="readinto fresh memory",
                verify=lambda size: _expect(size == len(replay.table("t"))),
                per_call=_size_of(path) / 1e9,
                unit="GB/s",
            )

    return contest


def _stalls(name: str, prepare: Any) -> Any:
    def rows(plan: Plan) -> Iterator[Row]:
        with prepare(plan) as replay, tempfile.TemporaryDirectory() as folder:
            replay.save(folder)
            found = [_longest_stall(replay, Path(folder)) for _ in range(plan.rounds)]
        shares = [100 * stall / seconds for stall, seconds in found]
        yield Row(
            f"checkpoints/stall {name}",
            "% of the save",
            Spread.of(shares),
            goal=Goal(most=5),
            notes=[
                f"the longest sample took {statistics.median(1e3 * stall for stall, _ in found):.2f} ms, "
                f"the save {statistics.median(1e3 * seconds for _, seconds in found):.0f} ms"
            ],
        )

    return rows


def _longest_stall(replay: hr.Replay, folder: Path) -> tuple[float, float]:
    """Seconds of the longest sample while a save was under way, and of the save."""
    longest, done = [0.0], threading.Event()
    replay.sample("t", 32)

    def sample() -> None:
        while not done.is_set():
            begin = time.perf_counter()
            replay.sample("t", 32)
            longest[0] = max(longest[0], time.perf_counter() - begin)

    thread = threading.Thread(target=sample)
    thread.start()
    begin = time.perf_counter()
    replay.save(folder, keep=1)
    seconds = time.perf_counter() - begin
    done.set()
    thread.join()
    return longest[0], seconds


def _saves(replay: hr.Replay, folder: Path) -> Run:
    def run(count: int) -> Path | None:
        path = None
        for _ in range(count):
            path = replay.save(folder, keep=1)
        return path

    return run


def _writes(content: list[bytes], folder: Path) -> Run:
    arrays = [np.frombuffer(each, np.uint8) for each in content]

    def run(count: int) -> None:
        for number in range(count):
            made = folder / str(number)
            made.mkdir(parents=True)
            for name, array in enumerate(arrays):
                with open(made / str(name), "wb") as file:
                    array.tofile(file)
                    file.flush()
                    os.fsync(file.fileno())
            shutil.rmtree(made)

    return run


def _loads(path: Path) -> Run:
    def run(count: int) -> int:
        size = 0
        for _ in range(count):
            with hr.Replay.load(path) as loaded:
                size = len(loaded.table("t"))
        return size

    return run


def _reads(path: Path) -> Run:
    files = [(file, file.stat().st_size) for file in path.iterdir()]

    def run(count: int) -> None:
        for _ in range(count):
            arrays = []
            for file, size in files:
                array = _new_array(size)
                with open(file, "rb", buffering=0) as opened:
                    opened.readinto(array)
                arrays.append(array)

    return run


def _new_array(size: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Memory that the system has just given, in large pages, as a loaded replay has it.

    `np.empty` gives the memory of an array that is gone again if it had at most 32 MiB.
    """
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8)


def _size_of(path: Path) -> int:
    return sum(file.stat().st_size for file in path.iterdir())


def _bytes_of(path: Path) -> list[bytes]:
    return [file.read_bytes() for file in path.iterdir()]


def _check(replay: hr.Replay, path: Path) -> None:
    with hr.Replay.load(path) as loaded:
        _expect(len(loaded.table("t")) == len(replay.table("t")))


def _expect(holds: bool) -> None:
    if not holds:
        raise AssertionError("the checkpoint has another number of items")
