"""Stacks of four 84 x 84 frames, cut from single frames that are stored once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

import headrace as hr
from bench import peers
from bench.case import Case, contest_case
from bench.measure import Contest, Goal, Plan, Run
from bench.steps import BATCH, table
from bench.uniform import samples

EPISODE = 1000
STACK = 4
FRAME = (84, 84)


def cases() -> list[Case]:
    return [
        contest_case("frames/transitions", _one_thread, Goal(ratio=0.75)),
        contest_case("frames/transitions, 2 threads", _two_threads, Goal(ratio=1.1)),
    ]


def frame(number: int, out: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A frame that tells its number, at its head and in its pixels."""
    out[:] = number % 251
    out.reshape(-1)[:8] = np.frombuffer(np.int64(number).tobytes(), np.uint8)
    return out


def frame_numbers(frames: NDArray[np.uint8]) -> NDArray[np.int64]:
    """The numbers of frames `[..., 84, 84]`, whose pixels must agree with them."""
    flat = frames.reshape(*frames.shape[:-2], -1)
    numbers = np.ascontiguousarray(flat[..., :8]).view(np.int64)[..., 0]
    if not (flat[..., 8:] == (numbers % 251).astype(np.uint8)[..., None]).all():
        raise AssertionError("a frame is mixed from several")
    return numbers


def fill_frames(writer: Any, steps: int) -> None:
    """Append frames 0, 1, ... in episodes of `EPISODE`; a final row holds the number of the step after it."""
    image = np.zeros(FRAME, np.uint8)
    for number in range(steps):
        step = {
            "observation": frame(number, image),
            "action": np.int64(number),
            "reward": np.float32(number % 1000),
            "terminated": number % EPISODE == EPISODE - 1,
            "truncated": False,
        }
        writer.append(step)
        if step["terminated"]:
            writer.end_episode({"observation": frame(number + 1, image)})


def frame_signature() -> hr.Signature:
    return hr.Signature.like(
        {
            "observation": np.zeros(FRAME, np.uint8),
            "action": np.int64(0),
            "reward": np.float32(0),
            "terminated": np.bool_(False),
            "truncated": np.bool_(False),
        }
    )


@contextmanager
def filled_frames(steps: int, **rule: Any) -> Iterator[hr.Replay]:
    """A replay of so many frames, each stored once."""
    rule = {"length": 1, "lookahead": 1, **rule}
    with hr.Replay(frame_signature(), [table(steps)], seed=0) as replay:
        with replay.writer(items=[hr.ItemRule("t", **rule)]) as writer:
            fill_frames(writer, steps)
            yield replay


@contextmanager
def _one_thread(plan: Plan) -> Iterator[Contest]:
    size = plan.size(100_000, 2 * EPISODE)
    with filled_frames(size) as replay:
        yield Contest(
            ours=samples(replay, hr.views.transition(frame_stack=STACK), BATCH),
            limit=_stacked_takes(size),
            limit_name="2 np.take of stacked frames",
            peers=peers.sides("frames", plan, size=size),
            verify=lambda batch: _check(batch.data),
        )


@contextmanager
def _two_threads(plan: Plan) -> Iterator[Contest]:
    size = plan.size(100_000, 2 * EPISODE)
    with filled_frames(size) as replay:
        run = samples(replay, hr.views.transition(frame_stack=STACK), BATCH)
        yield Contest(
            ours=_in_two_threads(run),
            limit=_stacked_takes(size),
            limit_name="2 np.take, one thread",
            verify=lambda batch: _check(batch.data),
        )


def _in_two_threads(run: Run) -> Run:
    def both(count: int) -> Any:
        results: list[Any] = []
        shares = [count - count // 2, count // 2]
        threads = [threading.Thread(target=lambda n=share: results.append(run(n))) for share in shares]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return next(result for result in results if result is not None)

    return both


def _check(data: dict[str, Any]) -> None:
    last = data["action"]
    first = last // EPISODE * EPISODE
    back = np.arange(1 - STACK, 1)
    expected = np.maximum(last[:, None] + back, first[:, None])
    after = np.maximum(last[:, None] + 1 + back, first[:, None])
    if not (frame_numbers(data["observation"]) == expected).all():
        raise AssertionError("a stack holds other frames")
    if not (frame_numbers(data["next_observation"]) == after).all():
        raise AssertionError("a next stack holds other frames")


def _stacked_takes(size: int) -> Run:
    """What can be reached with four (in fact eight) times the memory: rows stacked beforehand."""
    stacked = np.empty((size, STACK, *FRAME), np.uint8)
    stacked[:] = (np.arange(size) % 251).astype(np.uint8)[:, None, None, None]
    out = np.empty((BATCH, STACK, *FRAME), np.uint8), np.empty((BATCH, STACK, *FRAME), np.uint8)
    random = np.random.default_rng(0)

    def run(count: int) -> None:
        for _ in range(count):
            rows = random.integers(0, size - 1, BATCH)
            np.take(stacked, rows, axis=0, out=out[0], mode="clip")
            np.take(stacked, rows + 1, axis=0, out=out[1], mode="clip")

    return run
