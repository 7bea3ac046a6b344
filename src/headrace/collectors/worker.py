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

from headrace.collectors.failures import failed
from headrace.collectors.loop import CollectingLoop
from headrace.collectors.messages import AnyMessage, MoreColumns, NotStored, Paused, Ready, Start
from headrace.collectors.replay_columns import check_columns, check_filled, collected_signature, not_stored
from headrace.collectors.step_sink import StepSink
from headrace.collectors.weight_arguments import WeightCheck
from headrace.collectors.worker_inbox import Ending, WorkerInbox
from headrace.envs import make_stepper, new_columns
from headrace.envs.protocol import Columns
from headrace.errors import Disconnected
from headrace.leases.channel import Channel, Frame
from headrace.leases.messages import Goodbye
from headrace.leases.page_writer import PageWriter, Purpose
from headrace.leases.place import RowsPlace
from headrace.spec import ArraySpec, Signature
from headrace.weights import apply_weights


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
        replay: the signature of the replay that rows go into; None: rollouts only.
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
    replay: Signature | None


class Worker:
    """Collects by order of the collector at the other end of a channel."""

    def __init__(self, channel: Channel, inbox: WorkerInbox, task: Task) -> None:
        self._channel = channel
        self._inbox = inbox
        self._task = task
        self._version = 0
        self._begun = 0
        self._policy = task.policy if task.policy_factory is None else task.policy_factory()
        self.stepper = make_stepper(
            task.create_env_fn, num_envs=task.num_envs, info_columns=task.info_columns
        )
        try:
            self._prepare(task)
        except BaseException:
            self.stepper.close()
            raise

    def _prepare(self, task: Task) -> None:
        stepper = self.stepper
        self._loop = CollectingLoop(
            stepper, self._policy, max_frames_per_traj=task.max_frames_per_traj, refresh=self._refresh
        )
        self._steps = -(-task.frames_per_batch // stepper.num_envs)
        self._observed = frozenset(stepper.observation_signature.columns)
        self._sink: StepSink | None = None
        # The observations that the first rollout begins with.
        self._first: Columns = new_columns(stepper.observation_signature, stepper.num_envs)
        self._loop.reset(self._first, None if task.seeds_of is None else task.seeds_of(stepper.num_envs))
        self._extras: dict[str, ArraySpec] | None = None
        if task.replay is not None:
            check_columns(task.replay, self._signature({}))
        self._learn_extras(self._first)
        self._say_ready()

    def _learn_extras(self, row: Columns) -> bool:
        """See what the policy gives, once, and not before it is to act; returns whether that is more columns."""
        # Rules: collectors CR4
        if self._extras is not None or self._begun < self._task.random_frames:
            return False
        self._extras = dict(self._loop.probe(row))
        replay = self._task.replay
        if replay is None:
            return bool(self._extras)
        signature = self._signature(self._extras)
        check_columns(replay, signature, self._extras)
        check_filled(replay, signature)
        if names := not_stored(replay, self._extras):
            self._channel.send(NotStored(names=names))
        return False

    def _signature(self, extras: Mapping[str, ArraySpec]) -> Signature:
        return collected_signature(self.stepper.observation_signature, self.stepper.action_signature, extras)

    def _say_ready(self) -> None:
        layout = WeightCheck.of(self._policy).layout
        self._channel.send(
            Ready(
                signature=self._signature(self._extras or {}).to_json(),
                observed=sorted(self._observed),
                num_envs=self.stepper.num_envs,
                steps=self._steps,
                policy=type(self._policy).__name__,
                weights=b"" if layout is None else cloudpickle.dumps(layout),
                autoreset=self.stepper.autoreset,
            )
        )

    def _open_rows(self, first: Columns) -> None:
        """Write from here on where the collector says; `first` are the observations of the next step."""
        self._inbox.wait_for(lambda: self._inbox.rows is not None)
        assert self._inbox.rows is not None
        (message, descriptor), self._inbox.rows = self._inbox.rows, None
        place = RowsPlace(
            signature=Signature.from_json(message.signature),
            nbytes=message.nbytes,
            num_pages=message.num_pages,
            page_rows=message.page_rows,
        )
        writer = PageWriter(
            place.columns(descriptor),
            place.page_rows,
            self._observed,
            self.stepper.num_envs,
            self._need_page,
            message.writer,
        )
        if self._sink is None:
            self._sink = StepSink(writer, self.stepper.num_envs)
        else:
            writer.continue_from(self._sink.writer)
            self._sink.writer = writer
        writer.begin(first)

    def _refresh(self) -> int:
        weights = self._inbox.weights
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
            self._open_rows(self._first)
            while True:
                self._wait_for_turn()
                self._collect_rollout()

    def _collect_rollout(self) -> None:
        sink = self._begin_rollout()
        at_random = self._begun < self._task.random_frames
        self._begun += self._steps * self.stepper.num_envs
        for step in range(self._steps):
            if self._must_look():
                self._obey()
            self._loop.step(sink, at_random=at_random)
            closes = step + 1 == self._steps
            if closes or sink.writer.must_report:
                self._report(closes_rollout=closes)
                sink.writer.turn()

    def _begin_rollout(self) -> StepSink:
        assert self._sink is not None
        if self._learn_extras(self._sink.row):
            first = {name: column.copy() for name, column in self._sink.row.items()}
            self._channel.send(MoreColumns(signature=self._signature(self._extras or {}).to_json()))
            self._open_rows(first)
        return self._sink

    def _need_page(self, purpose: Purpose) -> int:
        """The next leased page; a full store may keep it waiting, and pauses are obeyed meanwhile."""
        while (page := self._inbox.next_page(purpose)) is None:
            self._obey_pause()
        return page

    def _wait_for_turn(self) -> None:
        """Wait until the next rollout may be begun."""
        inbox = self._inbox
        while True:
            self._obey_pause()
            inbox.wait_for(lambda: inbox.rollouts > 0 or inbox.pause is not None)
            if inbox.rollouts and inbox.pause is None:
                inbox.rollouts -= 1
                return

    def _must_look(self) -> bool:
        """Whether something else than the next step is wanted."""
        inbox = self._inbox
        return inbox.ends or inbox.pause is not None or inbox.seed is not None

    def _obey(self) -> None:
        """Do between two steps what is wanted."""
        inbox, sink = self._inbox, self._sink
        if inbox.ends:
            raise Ending
        self._obey_pause()
        if inbox.seed is None or sink is None:
            return
        seed, inbox.seed = inbox.seed, None
        # Written rows are sent first, because the reply brings the pages for the final rows of the cut.
        self._flush()
        sink.cut()
        self._flush()
        # Until then the collector may read this row as what followed the last step.
        inbox.wait_for(lambda: inbox.acked == sink.writer.sequence)
        seed_everything(seed.seed)
        self._loop.reset(sink.row, seed.seeds)

    def _obey_pause(self) -> None:
        inbox = self._inbox
        number = inbox.pause
        if number is None:
            return
        self._flush()
        self._channel.send(Paused(number=number))
        inbox.wait_for(lambda: inbox.pause != number)

    def _flush(self) -> None:
        if self._sink is not None and self._sink.writer.has_news:
            self._report(closes_rollout=False)

    def _report(self, *, closes_rollout: bool) -> None:
        sink, times = self._sink, self._loop.times
        assert sink is not None
        seconds = times.env, times.policy, times.write
        commit = sink.report()
        self._channel.send(commit, sink.progress(closes_rollout=closes_rollout, seconds=seconds))
        sink.begin_report()

    def finish(self) -> None:
        """Send what was collected and not sent, and close the environments unless told not to."""
        stop = self._inbox.stop
        if stop is not None:
            self._flush()
        if stop is None or stop.close_env:
            self.stepper.close()
        if stop is not None:
            self._channel.send(Goodbye())


def main(descriptor: int, parent: int) -> int:
    """Serve the collector of process `parent` at the other end of this socket; returns the exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = socket.socket(fileno=descriptor)
    connection.set_inheritable(False)
    channel = Channel(connection, AnyMessage)
    inbox = WorkerInbox(channel)
    try:
        start = channel.receive()
        assert isinstance(start.message, Start)
        threading.Thread(target=inbox.listen, daemon=True, name="headrace-inbox").start()
        threading.Thread(target=inbox.watch, args=(parent,), daemon=True, name="headrace-watch").start()
        _work(channel, inbox, start)
    except (Disconnected, Ending):
        return 1
    except BaseException as error:
        _tell(channel, error)
        return 1
    return 0


def _work(channel: Channel, inbox: WorkerInbox, start: Frame) -> None:
    task: Task = cloudpickle.loads(start.payload)
    if task.seed is not None:
        seed_everything(task.seed)
    had_torch = "torch" in sys.modules
    worker = Worker(channel, inbox, task)
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
    with suppress(Disconnected):  # The collector is gone as well.
        report, pickled = failed(error)
        channel.send(report, payload=pickled)
