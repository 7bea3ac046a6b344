"""The process that collects: it steps the environments and writes where the collector's process reads.

Started as a Python of its own (`process.WorkerProcess`), so a user's script needs no main guard. It ends when it is
told to, when an exception ends it, or when the collector's process is gone: then it stops before its next step, and if
a step takes longer than two seconds it ends without waiting for it.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import cloudpickle

from headrace.collectors.channel import (
    Channel,
    Failed,
    Lease,
    Paused,
    Pause,
    Proceed,
    Ready,
    Resume,
    Rollout,
    Seed,
    Start,
    Stop,
    Stopped,
    WeightsAt,
)
from headrace.collectors.leased_rows import LeasedRows, Leases
from headrace.collectors.loop import CollectingLoop
from headrace.collectors.replay_rows import check_columns
from headrace.collectors.rollout import RolloutBuffer, rollout_layout, rollout_signature
from headrace.envs import make_stepper, new_columns
from headrace.errors import Disconnected
from headrace.spec import Signature
from headrace.store.arena import Arena
from headrace.weights import SharedMemoryReceiver, apply_weights

_SLOTS = 2
_GRACE_SECONDS = 2.0


@dataclass(frozen=True, kw_only=True)
class ReplayPlace:
    """Where a replay's rows lie in the memory whose descriptor comes with `Start`."""

    signature: Signature
    nbytes: int
    num_pages: int
    page_rows: int


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a worker is to do.

    Attributes:
        path: `sys.path` of the collector's process.
        create_env_fn, create_env_kwargs, num_envs: the environments.
        policy, policy_factory: who acts; both None act at random.
        steps_of: from the number of copies to T.
        random_frames: frames begun before which actions are random.
        max_frames_per_traj: see `Collector`.
        seeds_of: from the number of copies to their seeds; None leaves them unseeded.
        worker_seed: of this process's global generators; None leaves them alone.
        replay: where rows go; None writes rollouts into memory of the worker's own.
    """

    path: Sequence[str] = field(repr=False)
    create_env_fn: Any
    create_env_kwargs: Any
    num_envs: int
    policy: Any
    policy_factory: Callable[[], Any] | None
    steps_of: Callable[[int], int]
    random_frames: int
    max_frames_per_traj: int | None
    seeds_of: Callable[[int], list[int]] | None
    worker_seed: int | None
    replay: ReplayPlace | None


class Orders:
    """What the collector has said, taken in by a thread of its own."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.changed = threading.Condition()
        self.free_slots: deque[int] = deque()
        self.leases = Leases()
        self.seeds: list[int] | None = None
        self.stop: Stop | None = None
        self.pausing = self.orphaned = False
        self.weights: SharedMemoryReceiver | None = None
        self.waited = 0.0

    def listen(self) -> None:
        """Take in messages until the collector is gone."""
        try:
            while True:
                message, descriptors = self._channel.receive()
                with self.changed:
                    self._take(message, descriptors)
                    self.changed.notify_all()
        except Disconnected:
            with self.changed:
                self.orphaned = True
                self.changed.notify_all()
            # The main thread stops before its next step; a step that hangs must not keep an orphan alive.
            time.sleep(_GRACE_SECONDS)
            os._exit(1)

    def _take(self, message: Any, descriptors: list[int]) -> None:
        match message:
            case Proceed(slot=slot):
                self.free_slots.append(slot)
            case Lease():
                self.leases.add(message)
            case WeightsAt(layout=layout):
                self.weights = SharedMemoryReceiver.from_fd(descriptors[0], cloudpickle.loads(layout))
            case Seed(seeds=seeds):
                self.seeds = seeds
            case Pause():
                self.pausing = True
            case Resume():
                self.pausing = False
            case Stop():
                self.stop = message

    @property
    def ends(self) -> bool:
        """Whether there is nothing more to do."""
        return self.stop is not None or self.orphaned

    def wait_until(self, there: Callable[[], bool]) -> bool:
        """Wait for something; False when it is time to end instead."""
        begin = time.perf_counter()
        with self.changed:
            while not there() and not self.ends:
                self.changed.wait()
        self.waited += time.perf_counter() - begin
        return not self.ends


class _Ending(Exception):
    """It is time to end."""


class Worker:
    """Collects by order of the collector at the other end of a channel."""

    def __init__(self, channel: Channel, orders: Orders, task: Task, replay_descriptor: int | None) -> None:
        self._channel = channel
        self._orders = orders
        self._task = task
        self._version = 0
        self._begun = 0
        policy = task.policy_factory() if task.policy_factory is not None else task.policy
        self._policy = policy
        self.stepper = make_stepper(
            task.create_env_fn, create_env_kwargs=task.create_env_kwargs, num_envs=task.num_envs
        )
        self._loop = CollectingLoop(
            self.stepper, policy, max_frames_per_traj=task.max_frames_per_traj, refresh=self._refresh
        )
        self._steps = task.steps_of(self.stepper.num_envs)
        self._first = new_columns(self.stepper.observation_signature, self.stepper.num_envs)
        self._loop.reset(self._first, None if task.seeds_of is None else task.seeds_of(self.stepper.num_envs))
        self._signature = rollout_signature(
            self.stepper.observation_signature, self.stepper.action_signature, self._loop.probe(self._first)
        )
        self._observed = frozenset(self.stepper.observation_signature.columns)
        self._buffers: list[RolloutBuffer] = []
        self._rows: LeasedRows | None = None
        if task.replay is None:
            self._make_buffers()
        else:
            self._map_replay(task.replay, replay_descriptor)

    def _make_buffers(self) -> None:
        size = rollout_layout(self._signature, self._observed, self._steps, self.stepper.num_envs).nbytes
        arena = Arena.shared(_SLOTS * size)
        self._buffers = [
            RolloutBuffer(
                arena, self._signature, self._observed, self._steps, self.stepper.num_envs, slot * size
            )
            for slot in range(_SLOTS)
        ]
        self._say_ready(_SLOTS * size, (arena.descriptor,))

    def _map_replay(self, place: ReplayPlace, descriptor: int | None) -> None:
        assert descriptor is not None
        check_columns(place.signature, self._signature)
        self._rows = LeasedRows(
            Arena.attach(descriptor, place.nbytes),
            place.signature,
            place.num_pages,
            place.page_rows,
            self._observed,
            self.stepper.num_envs,
            self._need_page,
        )
        self._say_ready(0, ())

    def _say_ready(self, nbytes: int, descriptors: tuple[int, ...]) -> None:
        self._channel.send(
            Ready(
                signature=self._signature.to_json(),
                observed=sorted(self._observed),
                num_envs=self.stepper.num_envs,
                steps=self._steps,
                nbytes=nbytes,
            ),
            descriptors,
        )

    def _need_page(self, finals: bool) -> int:
        leases = self._orders.leases
        pages = leases.finals if finals else leases.rows
        if not self._orders.wait_until(lambda: bool(pages)):
            raise _Ending
        return pages.popleft()

    def _refresh(self) -> int:
        weights = self._orders.weights
        if weights is not None and weights.version != self._version:
            self._version, values = weights.read()
            apply_weights(self._policy, values)
        return self._version

    # ---- collecting ------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Collect until told to stop, or until the collector is gone."""
        try:
            if self._rows is not None:
                self._collect_rows(self._rows)
            else:
                self._collect_rollouts()
        except _Ending:
            pass

    def _collect_rollouts(self) -> None:
        first: Any = self._first
        while True:
            slot = self._begin_rollout()
            buffer = self._buffers[slot]
            buffer.begin()
            for name, column in first.items():
                buffer.rows[0][name][...] = column
            at_random = self._acts_at_random()
            while not buffer.is_full:
                if self._obey(buffer.row):
                    buffer.mark_restart()
                self._loop.step(buffer, at_random=at_random)
            for name, column in buffer.rows[buffer.steps].items():
                first[name][...] = column
            env, policy, waited = self._times()
            self._channel.send(
                Rollout(
                    slot=slot,
                    finals=buffer.num_finals,
                    env_seconds=env,
                    policy_seconds=policy,
                    wait_seconds=waited,
                )
            )

    def _collect_rows(self, rows: LeasedRows) -> None:
        for name, column in rows.first_row().items():
            column[...] = self._first[name]
        while True:
            self._begin_rollout()
            at_random = self._acts_at_random()
            for step in range(self._steps):
                if self._obey(rows.row):
                    rows.restart()
                self._loop.step(rows, at_random=at_random)
                closes = step + 1 == self._steps
                if closes or rows.page_is_full:
                    self._channel.send(rows.report(closes_rollout=closes, times=self._times()))

    def _begin_rollout(self) -> int:
        orders = self._orders
        while True:
            self._obey_pause()
            if not orders.wait_until(lambda: bool(orders.free_slots) or orders.pausing):
                raise _Ending
            if orders.free_slots and not orders.pausing:
                return orders.free_slots.popleft()

    def _acts_at_random(self) -> bool:
        at_random = self._begun < self._task.random_frames
        self._begun += self._steps * self.stepper.num_envs
        return at_random

    def _obey(self, row: Any) -> bool:
        """Look between two steps whether something else is wanted; whether all copies were reset."""
        orders = self._orders
        if orders.ends:
            raise _Ending
        if orders.pausing:
            self._obey_pause()
        if orders.seeds is None:
            return False
        seeds, orders.seeds = orders.seeds, None
        if self._rows is not None:
            # The rows before are sent first: what they end with is cut here.
            self._channel.send(self._rows.report(closes_rollout=False, times=self._times(), cut=True))
        self._loop.reset(row, seeds)
        return True

    def _obey_pause(self) -> None:
        orders = self._orders
        if not orders.pausing:
            return
        if self._rows is not None:
            self._channel.send(self._rows.report(closes_rollout=False, times=self._times()))
        self._channel.send(Paused())
        if not orders.wait_until(lambda: not orders.pausing):
            raise _Ending

    def _times(self) -> tuple[float, float, float]:
        return self._loop.times.env, self._loop.times.policy, self._orders.waited

    def finish(self) -> None:
        """Send what was collected and not sent, and close the environments unless told not to."""
        stop = self._orders.stop
        if stop is not None and self._rows is not None:
            self._channel.send(self._rows.report(closes_rollout=False, times=self._times()))
        if stop is None or stop.close_env:
            self.stepper.close()
        if stop is not None:
            self._channel.send(Stopped())


def main(descriptor: int) -> int:
    """Serve the collector at the other end of this socket; returns the exit code."""
    # Ctrl-C reaches the whole group of the terminal; the collector decides what becomes of its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = Channel(socket.socket(fileno=descriptor))
    orders = Orders(channel)
    try:
        start, descriptors = channel.receive()
        assert isinstance(start, Start)
        threading.Thread(target=orders.listen, daemon=True, name="headrace-orders").start()
        worker = _build(channel, orders, start, descriptors)
        worker.run()
        worker.finish()
    except Disconnected:
        return 1
    except BaseException as error:
        _tell(channel, error)
        return 1
    return 0


def _build(channel: Channel, orders: Orders, start: Start, descriptors: list[int]) -> Worker:
    # The path first: what the task refers to is imported while it is unpickled.
    path, blob = cloudpickle.loads(start.payload)
    sys.path[:] = path
    task: Task = cloudpickle.loads(blob)
    if task.worker_seed is not None:
        _seed_everything(task.worker_seed)
    return Worker(channel, orders, task, descriptors[0] if descriptors else None)


def _seed_everything(seed: int) -> None:
    import random

    import numpy as np

    streams = np.random.SeedSequence([seed, 0]).generate_state(3)
    random.seed(int(streams[0]))
    np.random.seed(int(streams[1]))
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(int(streams[2]))


def _tell(channel: Channel, error: BaseException) -> None:
    text = "".join(traceback.format_exception(error))
    try:
        pickled = cloudpickle.dumps(error)
    except Exception:
        pickled = b""
    try:
        channel.send(Failed(error=pickled, text=text))
    except Disconnected:
        pass  # Nobody is left to be told.
