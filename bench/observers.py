"""Frames of a driver into windows of 16: one call a frame, and what the frames take."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

import headrace as hr
from bench.case import Case, contest_case
from bench.measure import Contest, Goal, Plan, Row, Run, Spread
from bench.steps import EPISODE, table

_LENGTH = 16


def cases() -> list[Case]:
    return [
        contest_case("observers/call", lambda plan: _calls(plan, pad=False), Goal(least=100e3)),
        contest_case("observers/call, tiled", lambda plan: _calls(plan, pad=True), Goal(least=100e3)),
        Case("observers/bytes", _bytes),
    ]


def _episode(transitions: int) -> list[hr.Trajectory]:
    """The frames of an episode, boundary included; each observation is another array and tells its place."""
    last = transitions - 1
    return [
        hr.Trajectory(
            step_type=np.int32(0 if t == 0 else 2 if t == transitions else 1),
            observation=np.full(4, t, np.float32),
            action=np.int64(t),
            policy_info=(),
            next_step_type=np.int32(0 if t == transitions else 2 if t == last else 1),
            reward=np.float32(t),
            discount=np.float32(1),
        )
        for t in range(transitions + 1)
    ]


@contextmanager
def _calls(plan: Plan, *, pad: bool) -> Iterator[Contest]:
    size = plan.size(100_000, 512)
    frames = _episode(EPISODE)
    with hr.Replay(hr.Signature.like(frames[0]), [table(size)], seed=0) as replay:
        with hr.AddTrajectoryObserver(replay, "t", _LENGTH, pad_end_of_episodes=pad) as observer:
            ours = _run(observer, frames)
            ours(2 * size)
            yield Contest(
                ours=ours,
                limit=_ring(frames, size),
                limit_name="plain ring",
                verify=lambda _: _check(replay, size, pad),
                unit="steps/s",
            )
            observer.reset(False)


def _run(observer: hr.AddTrajectoryObserver, frames: list[hr.Trajectory]) -> Run:
    place = 0

    def run(count: int) -> None:
        nonlocal place
        for _ in range(count):
            observer(frames[place])
            place = place + 1 if place < EPISODE else 0

    return run


def _ring(frames: list[hr.Trajectory], size: int) -> Run:
    """The same leaves assigned to arrays, and nothing else."""
    columns = {
        name: np.zeros((size, *spec.shape), spec.dtype)
        for name, spec in hr.Signature.like(frames[0]).columns.items()
    }
    steps = [[(columns[name], getattr(frame, name)) for name in columns] for frame in frames]
    place = at = 0

    def run(count: int) -> None:
        nonlocal place, at
        for _ in range(count):
            for column, value in steps[at]:
                column[place] = value
            place = (place + 1) % size
            at = at + 1 if at < EPISODE else 0

    return run


def _check(replay: hr.Replay, size: int, pad: bool) -> None:
    """That the table is full of windows of frames that follow each other, and each frame agrees with itself."""
    if len(replay.table("t")) != size:
        raise AssertionError(f"{len(replay.table('t'))} items, expected {size}")
    batch = replay.sample("t", 256)
    mask = np.ones((256, _LENGTH), bool) if batch.mask is None else batch.mask
    if not pad and not mask.all():
        raise AssertionError("a window was padded")
    expected = np.where(mask, batch.data.action[:, :1] + np.arange(_LENGTH), 0)
    if not (batch.data.action == expected).all() or not (batch.data.reward == expected).all():
        raise AssertionError("a window whose frames do not follow each other")
    if not (batch.data.observation == expected[:, :, None]).all():
        raise AssertionError("columns that do not belong together")


def _bytes(plan: Plan) -> Iterator[Row]:
    """Bytes of the rows over those of the frames' own arrays; every frame is in 16 windows of each of two tables."""
    count = plan.size(50, 2)
    frames = [frame._replace(observation=np.zeros((84, 84), np.uint8)) for frame in _episode(EPISODE)]
    tables = [
        hr.Table(
            name, sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=count * len(frames)
        )
        for name in ("a", "b")
    ]
    with hr.Replay(hr.Signature.like(frames[0]), tables, seed=0) as replay:
        with hr.AddTrajectoryObserver(replay, ["a", "b"], _LENGTH, pad_end_of_episodes=True) as observer:
            for _ in range(count):
                for frame in frames:
                    observer(frame)
        held = replay.statistics()
        payload = count * len(frames) * replay.signature.nbytes
        if len(replay.table("a")) != count * len(frames):
            raise AssertionError(f"{len(replay.table('a'))} items, expected {count * len(frames)}")
        share = (held.store.bytes + sum(each.bytes for each in held.tables.values())) / payload
    yield Row("observers/bytes", "of the payload", Spread(share, share, share), goal=Goal(most=1.1))
