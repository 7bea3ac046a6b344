"""The process that collects: it steps the environments and writes where the collector's process reads.

Started as a Python of its own (`process.WorkerProcess`), so a user's script needs no main guard. It ends when it is
told to, when an exception ends it, or when the collector's process is gone: then it stops before its next step, and if
a step takes longer it ends without waiting for it.
"""

from __future__ import annotations

import random
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import cloudpickle
import numpy as np

from headrace.collectors.channel import Channel, NotStored, Paused, Ready, Rollout, Slots, Start, Stopped
from headrace.collectors.failures import failed
from headrace.collectors.leased_rows import LeasedRows
from headrace.collectors.loop import CollectingLoop
from headrace.collectors.orders import Ending, Orders
from headrace.collectors.replay_columns import check_columns, check_filled, not_stored
from headrace.collectors.rollout import RolloutBuffer, rollout_layout, rollout_signature
from headrace.collectors.sources import WeightCheck
from headrace.envs import make_stepper, new_columns
from headrace.envs.protocol import Columns
from headrace.errors import Disconnected
from headrace.spec import ArraySpec, Signature
from headrace.store.arena import Arena
from headrace.weights import apply_weights

SLOTS = 2


@dataclass(frozen=True, kw_only=True)
class ReplayPlace:
    """Where a replay's rows lie in the memory whose descriptor comes with `Start`."""

    signature: Signature
    nbytes: int
    num_pages: int
    page_rows: int


@dataclass(frozen=True, kw_only=True)
class Task:
    """The work that a worker is given.

    Attributes:
        create_env_fn, num_envs: the environments.
        info_columns: entries of `info` to keep as columns.
        policy, policy_factory: who acts; both None act at random.
        frames_per_batch: of all copies, before it is rounded up to whole steps.
        random_frames: frames begun before which actions are random.
        max_frames_per_traj: see `Collector`.
        seeds_of: from the number of copies to their seeds; None leaves them unseeded.
        seed: of this process's global generators; None leaves them alone.
        replay: where rows go; None writes rollouts into memory of the worker's own.
    """

    create_env_fn: Callable[[], Any]
    num_envs: int
    info_columns: Mapping[str, ArraySpec] | None
    policy: Any
    policy_factory: Callable[[], Any] | None
    frames_per_batch: int
    random_frames: int
    max_frames_per_traj: int | None
    seeds_of: Callable[[int], list[int]] | None
    seed: int | None
    replay: ReplayPlace | None


class Worker:
    """Collects by order of the collector at the other end of a channel."""

    def __init__(self, channel: Channel, orders: Orders, task: Task, replay_descriptor: int | None) -> None:
        self._channel = channel
        self._orders = orders
        self._task = task
        self._version = 0
        self._begun = 0
        self._policy = task.policy if task.policy_factory is None else task.policy_factory()
        self.stepper = make_stepper(
            task.create_env_fn, num_envs=task.num_envs, info_columns=task.info_columns
        )
        try:
            self._prepare(task, replay_descriptor)
        except BaseException:
            self.stepper.close()
            raise

    def _prepare(self, task: Task, replay_descriptor: int | None) -> None:
        stepper = self.stepper
        self._loop = CollectingLoop(
            stepper, self._policy, max_frames_per_traj=task.max_frames_per_traj, refresh=self._refresh
        )
        self._steps = -(-task.frames_per_batch // stepper.num_envs)
        self._observed = frozenset(stepper.observation_signature.columns)
        # The observations that the next rollout begins with.
        self._first: Columns = new_columns(stepper.observation_signature, stepper.num_envs)
        self._loop.reset(self._first, None if task.seeds_of is None else task.seeds_of(stepper.num_envs))
        self._buffers: list[RolloutBuffer] = []
        self._rows: LeasedRows | None = None
        if task.replay is not None:
            self._map_replay(task.replay, replay_descriptor)
        self._extras: dict[str, ArraySpec] | None = None
        self._learn_extras()
        if self._extras is None:
            self._make_room({})
        self._say_ready()

    def _map_replay(self, place: ReplayPlace, descriptor: int | None) -> None:
        assert descriptor is not None
        self._rows = LeasedRows(
            Arena.attach(descriptor, place.nbytes),
            place.signature,
            place.num_pages,
            place.page_rows,
            self._observed,
            self.stepper.num_envs,
            self._need_page,
        )

    def _learn_extras(self) -> None:
        """See what the policy gives, once, and not before it is to act."""
        # Rules: collectors CR4
        if self._extras is None and self._begun >= self._task.random_frames:
            self._extras = dict(self._loop.probe(self._first))
            self._make_room(self._extras)
            if self._task.replay is not None:
                check_filled(self._task.replay.signature, self._signature(self._extras))
                if names := not_stored(self._task.replay.signature, self._extras):
                    self._channel.send(NotStored(names=names))

    def _signature(self, extras: Mapping[str, ArraySpec]) -> Signature:
        return rollout_signature(self.stepper.observation_signature, self.stepper.action_signature, extras)

    def _make_room(self, extras: Mapping[str, ArraySpec]) -> None:
        signature = self._signature(extras)
        if self._task.replay is None:
            self._make_buffers(signature)
        else:
            check_columns(self._task.replay.signature, signature, extras)

    def _make_buffers(self, signature: Signature) -> None:
        num_envs = self.stepper.num_envs
        size = rollout_layout(signature, self._observed, self._steps, num_envs).nbytes
        arena = Arena.shared(SLOTS * size)
        self._buffers = [
            RolloutBuffer(arena, signature, self._observed, self._steps, num_envs, slot * size)
            for slot in range(SLOTS)
        ]
        self._channel.send(
            Slots(
                signature=signature.to_json(),
                observed=sorted(self._observed),
                num_envs=num_envs,
                steps=self._steps,
                nbytes=SLOTS * size,
            ),
            (arena.descriptor,),
        )

    def _say_ready(self) -> None:
        layout = WeightCheck.of(self._policy).layout
        self._channel.send(
            Ready(
                observed=sorted(self._observed),
                num_envs=self.stepper.num_envs,
                steps=self._steps,
                policy=type(self._policy).__name__,
                weights=b"" if layout is None else cloudpickle.dumps(layout),
                autoreset=self.stepper.autoreset,
            )
        )

    def _refresh(self) -> int:
        weights = self._orders.weights
        if weights is not None and weights.version != self._version:
            newest = weights.try_read()
            if newest is not None:  # Else it is overtaken: the next step looks again.
                self._version, values = newest
                apply_weights(self._policy, values)
        return self._version

    # ---- collecting ------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Collect until told to stop, or until the collector is gone."""
        with suppress(Ending):
            if self._rows is not None:
                self._collect_rows(self._rows)
            else:
                self._collect_rollouts()

    def _collect_rollouts(self) -> None:
        while True:
            slot = self._wait_for_turn()
            at_random = self._begin_rollout()
            buffer = self._buffers[slot]
            buffer.begin(self._first)
            while not buffer.is_full:
                if self._must_look():
                    self._obey(buffer)
                self._loop.step(buffer, at_random=at_random)
            buffer.copy_last(self._first)
            self._channel.send(Rollout(slot=slot, finals=buffer.num_finals, seconds=self._seconds()))

    def _collect_rows(self, rows: LeasedRows) -> None:
        rows.begin(self._first)
        while True:
            self._wait_for_turn()
            self._first = rows.row
            at_random = self._begin_rollout()
            for step in range(self._steps):
                if self._must_look():
                    self._obey(rows)
                self._loop.step(rows, at_random=at_random)
                closes = step + 1 == self._steps
                if closes or rows.page_is_full:
                    self._channel.send(rows.report(closes_rollout=closes, seconds=self._seconds()))
                    rows.turn()

    def _need_page(self, finals: bool) -> int:
        """The next leased page; a full store may keep it waiting, and pauses are obeyed meanwhile."""
        while (page := self._orders.next_page(finals)) is None:
            self._obey_pause()
        return page

    def _wait_for_turn(self) -> int:
        """The slot of the next rollout, as soon as it may be begun."""
        orders = self._orders
        while True:
            self._obey_pause()
            if not orders.wait_until(lambda: bool(orders.free_slots) or orders.pause is not None):
                raise Ending
            if orders.free_slots and orders.pause is None:
                return orders.free_slots.popleft()

    def _begin_rollout(self) -> bool:
        """Whether its actions are random."""
        self._learn_extras()
        at_random = self._begun < self._task.random_frames
        self._begun += self._steps * self.stepper.num_envs
        return at_random

    def _must_look(self) -> bool:
        """Whether something else than the next step is wanted."""
        orders = self._orders
        return orders.ends or orders.pause is not None or orders.seed is not None

    def _obey(self, sink: RolloutBuffer | LeasedRows) -> None:
        """Do between two steps what is wanted."""
        orders = self._orders
        if orders.ends:
            raise Ending
        self._obey_pause()
        if orders.seed is None:
            return
        seed, orders.seed = orders.seed, None
        # What was written is sent first: the pages of final rows that the cut may need come in answer to it.
        self._flush()
        sink.cut()
        self._flush()
        if self._rows is not None:
            self._rows.turn()
        seed_everything(seed.seed)
        self._loop.reset(sink.row, seed.seeds)

    def _obey_pause(self) -> None:
        orders = self._orders
        number = orders.pause
        if number is None:
            return
        self._flush()
        self._channel.send(Paused(number=number))
        if not orders.wait_until(lambda: orders.pause != number):
            raise Ending

    def _flush(self) -> None:
        if self._rows is not None and self._rows.has_news:
            self._channel.send(self._rows.report(closes_rollout=False, seconds=self._seconds()))

    def _seconds(self) -> tuple[float, float, float]:
        times = self._loop.times
        return times.env, times.policy, times.write

    def finish(self) -> None:
        """Send what was collected and not sent, and close the environments unless told not to."""
        stop = self._orders.stop
        if stop is not None:
            self._flush()
        if stop is None or stop.close_env:
            self.stepper.close()
        if stop is not None:
            self._channel.send(Stopped())


def main(descriptor: int, parent: int) -> int:
    """Serve the collector of process `parent` at the other end of this socket; returns the exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = socket.socket(fileno=descriptor)
    connection.set_inheritable(False)
    channel = Channel(connection)
    orders = Orders(channel)
    try:
        start, descriptors = channel.receive()
        assert isinstance(start, Start)
        threading.Thread(target=orders.listen, daemon=True, name="headrace-orders").start()
        threading.Thread(target=orders.watch, args=(parent,), daemon=True, name="headrace-watch").start()
        _work(channel, orders, start, descriptors)
    except (Disconnected, Ending):
        return 1
    except BaseException as error:
        _tell(channel, error)
        return 1
    return 0


def _work(channel: Channel, orders: Orders, start: Start, descriptors: list[int]) -> None:
    task: Task = cloudpickle.loads(start.payload)
    if task.seed is not None:
        seed_everything(task.seed)
    had_torch = "torch" in sys.modules
    worker = Worker(channel, orders, task, descriptors[0] if descriptors else None)
    if task.seed is not None and not had_torch:
        seed_everything(task.seed)  # It may have been loaded only now.
    try:
        worker.run()
    except BaseException as error:
        _tell(channel, error)
        with suppress(Exception):
            worker.stepper.close()
        raise Ending from error
    worker.finish()


def seed_everything(seed: int) -> None:
    """Seed the global generators of this process."""
    # Rules: collectors CS3
    streams = np.random.SeedSequence([seed, 0]).generate_state(3)
    random.seed(int(streams[0]))
    np.random.seed(int(streams[1]))  # noqa: NPY002 - what environments use is the global generator
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(int(streams[2]))


def _tell(channel: Channel, error: BaseException) -> None:
    with suppress(Disconnected):  # Then nobody is left to be told.
        channel.send(failed(error))
