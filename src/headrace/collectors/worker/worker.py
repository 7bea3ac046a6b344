"""The worker: it steps the environments and writes where the collector's process reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import cloudpickle
import numpy as np
from numpy.typing import NDArray

from headrace.collectors.last_step import LastStep
from headrace.collectors.loop.collecting import CollectingLoop
from headrace.collectors.loop.hooks import CollectHooks
from headrace.collectors.loop.step_counts import StepCounts
from headrace.collectors.loop.step_monitor import StepMonitor
from headrace.collectors.loop.task import Task
from headrace.collectors.loop.turn import RolloutTurn
from headrace.collectors.messages import (
    MoreColumns,
    NotStored,
    Paused,
    Proceed,
    Progress,
    Ready,
)
from headrace.collectors.updates.models import POLICY, models_of
from headrace.collectors.updates.reading import WeightReading
from headrace.collectors.worker.inbox import Ending, Loaded, WorkerInbox
from headrace.collectors.worker.own_collector import OwnCollector
from headrace.collectors.worker.seeds import WorkerSeeds
from headrace.envs.closing import ClosesLate
from headrace.envs.protocol import Indices
from headrace.leases.channel import Channel
from headrace.leases.messages import Commit, Goodbye, Message
from headrace.leases.writing.page_writer import PageWriter, Purpose

if TYPE_CHECKING:
    from headrace.collectors.worker.rollout_copy import RolloutCopy
    from headrace.collectors.worker.staged_rollouts import StagedRollouts


class Worker:
    """Collects rollouts for the collector at the other end of a channel, when it grants them.

    Args:
        channel: to the collector.
        inbox: its messages.
        worker_idx: the worker's number.
        seeds: of its environments and generators.
        task: the work.
        last_step: takes the time of each step, and the number of transitions.
        closes_late: for an error of this constructor while an environment hangs in its `close`.

    Attributes:
        loop: the collecting loop.
    """

    def __init__(
        self,
        channel: Channel,
        inbox: WorkerInbox,
        worker_idx: int,
        seeds: WorkerSeeds,
        task: Task,
        last_step: LastStep,
        closes_late: ClosesLate,
    ) -> None:
        self._channel = channel
        self._inbox = inbox
        self._idx, self._seeds = worker_idx, seeds
        self._last_step = last_step
        self._monitor = StepMonitor(channel.fileno(), last_step.memory)
        self._has_replay = task.replay is not None
        self._updates_each_step = True
        self._hooks = CollectHooks()
        self._copy: RolloutCopy | None = None
        self.loop = CollectingLoop(task, self._refresh, closes_late=closes_late)
        self._staged: StagedRollouts | None = None
        # These parts have a store of their own, and with it half of the package: most workers start without them.
        if task.postproc is not None or (self._has_replay and self.loop.marks is not None):
            from headrace.collectors.worker.staged_rollouts import StagedRollouts

            self._staged = StagedRollouts(self.loop, task.postproc, self._hooks, worker_idx, self._send)
        self._turn = RolloutTurn()
        try:
            policy = self.loop.policy
            self._models = models_of(policy, dict.fromkeys((POLICY, *task.model_paths)))
            self._weights = WeightReading(policy, self._models, task.weight_ends, self.loop.times)
            self._own = OwnCollector(
                self.loop,
                worker_idx,
                self._weights,
                self._turn,
                inbox.resets,
                self._receive_weights,
                self._read_published,
            )
            self.loop.restart(seeds.of_environments(self.loop.stepper.num_envs))
            if not task.random_frames:
                self._learn_columns()
            self._say_ready()
        except BaseException as error:
            self.loop.abandon(error)
            raise

    def _read_published(self) -> None:
        """Reads the weights that the next step or the next rollout would take over, so that a state has them."""
        # Rules: collectors CQ3, CV2
        self._receive_weights()
        if self._updates_each_step or not self._turn.left:
            self._weights.take_over_for_rollout()
        else:
            self._weights.read_ahead()

    def _learn_columns(self) -> bool:
        """See `CollectingLoop.learn_columns`; returns whether the rows need more columns."""
        if not self.loop.learn_columns():
            return False
        if self.loop.not_stored:
            self._channel.send(NotStored(names=self.loop.not_stored))
        if self._staged is not None and self.loop.has_writer:
            self._staged.add_columns()
        return not self._has_replay

    def _say_ready(self) -> None:
        loop = self.loop
        self._channel.send(
            Ready(
                signature=loop.signature.to_json(),
                observed=sorted(loop.observed),
                num_envs=loop.stepper.num_envs,
                steps=loop.steps,
                models=cloudpickle.dumps(self._models),
                autoreset=loop.stepper.autoreset,
                lanes_may_wait=loop.stepper.lanes_may_wait,
                reset_together=loop.reset_together,
                views=cloudpickle.dumps(loop.views),
                acts_ahead=loop.acts_ahead,
                marks_late=loop.marks is not None,
            )
        )

    def _open_rows(self) -> None:
        """Moves to the rows that the collector has opened."""
        inbox, loop = self._inbox, self.loop
        self._wait_for(lambda: inbox.rows is not None)
        assert inbox.rows is not None
        (message, descriptor), inbox.rows = inbox.rows, None
        place = message.place
        self._signature, self._begins_pages = place.signature, message.begins_pages
        columns, num_envs = place.columns(descriptor), loop.stepper.num_envs
        self._writer = PageWriter(
            columns, place.page_rows, loop.observed, num_envs, self._need_page, message.writer
        )
        (loop.write_to if self._staged is None else self._staged.open)(self._writer)

    def _need_page(self, purpose: Purpose) -> int:
        """Returns the next leased page. A full store may keep it waiting; meanwhile it pauses and answers questions."""
        begin = self.loop.times.clock()
        while (page := self._inbox.next_page(purpose)) is None:
            self._answer_questions()
            self._pause_if_asked()
        self.loop.times.note("wait", begin)
        return page

    def _refresh(self) -> int:
        """Takes over new weights before a step, unless they are for the next rollout; returns the acting number."""
        return self._weights.take_over() if self._updates_each_step else self._weights.number

    def _begin_weights(self, turn: Proceed) -> None:
        """Takes over new weights before a rollout, unless it goes on with those that it was begun with."""
        # Rules: collectors CW3, CQ3
        self._receive_weights()
        self._updates_each_step = turn.updates_each_step
        if turn.updates_each_step or not turn.continues:
            self._weights.take_over_for_rollout()

    def _receive_weights(self) -> None:
        """Reads new weights from the memory that the learner has shared, if that is new."""
        shared, self._inbox.weights = self._inbox.weights, None
        if shared is not None:
            message, descriptor = shared
            layout = cloudpickle.loads(message.layout)
            self._weights.receive(descriptor, layout, message.address, message.addresses)

    # ---- collecting ------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Collects until the collector says stop, or is gone."""
        with suppress(Ending):
            with suppress(Loaded):
                self._open_rows()
            while True:
                with suppress(Loaded):
                    self._collect_rollouts()

    def _collect_rollouts(self) -> None:
        proceed = self._wait_for_turn()
        while True:
            self._collect_rollout(proceed)
            # The learner may take over the processor when it is sent the report, so the wait for it begins there.
            begin = self._reported_at
            proceed = self._wait_for_turn()
            self.loop.times.note("wait", begin)

    def _wait_for_turn(self) -> Proceed:
        """Waits until the next rollout may be begun."""
        inbox = self._inbox
        while not self._can_begin() or inbox.pause is not None:
            self._pause_if_asked()
            self._wait_for(lambda: self._can_begin() or inbox.pause is not None)
        return inbox.rollouts.popleft()

    def _can_begin(self) -> bool:
        # Rules: collectors CR7. Where every environment waits, a rollout would have no transition.
        inbox = self._inbox
        if not inbox.rollouts:
            return False
        return bool(inbox.resets) or inbox.rollouts[0].is_needed or not self.loop.all_wait

    def _collect_rollout(self, proceed: Proceed) -> None:
        loop, turn = self.loop, self._turn
        self._begin_weights(proceed)
        self._take_hooks()
        if not proceed.continues:
            turn.left = 0  # Of a loaded state, whose steps so far the collector does not have.
            self._hooks.before()
            if loop.must_reset:
                self._reset_also(np.ones(loop.stepper.num_envs, np.bool_))
            turn.begin(loop.steps, at_random=proceed.at_random)
        if not turn.at_random and self._learn_columns():
            self._channel.send(MoreColumns(signature=loop.signature.to_json()))
            self._open_rows()
        if proceed.continues:
            loop.resume(turn.left, at_random=turn.at_random)
        else:
            loop.begin(at_random=turn.at_random)
        if self._copy is not None:
            self._copy.begin(self._signature)
        self._take_steps()
        if self._begins_pages and (message := self._writer.page_return) is not None:
            self._writer.begin_block()
            self._channel.send(message)

    def _take_steps(self) -> None:
        """Takes the steps that are left of the rollout under way."""
        loop, inbox, turn = self.loop, self._inbox, self._turn
        writer, staged, monitor = loop.writer, self._staged, self._monitor
        inbox.look()
        while turn.left:
            if inbox.interrupts:
                self._process_messages(may_pause=staged is None or turn.left == loop.steps)
            if inbox.is_preempted:
                turn.left = loop.end_within(turn.left)
            turn.left -= loop.take_steps(turn.left, monitor)
            if monitor.has_arrived:
                inbox.take_arrived()
            closes = turn.left == 0
            if staged is not None:
                if closes:
                    staged.finish()
            elif closes or writer.must_report:
                self._report(closes_rollout=closes)
                writer.turn()

    def _report(self, *, closes_rollout: bool) -> None:
        continued = self.loop.continued
        commit, counts = self.loop.report()
        if self._copy is not None:
            writer = self.loop.writer
            self._copy.add_report(writer, commit)
            if closes_rollout:
                self._hooks.after(self._copy.take())
        if closes_rollout:
            self.loop.end()
        self._send(commit, counts, closes_rollout, continued if commit.steps else [])

    def _send(
        self, commit: Commit, counts: StepCounts, closes_rollout: bool, continued: Sequence[int] = ()
    ) -> None:
        progress = self._progress(counts, closes_rollout=closes_rollout, continued=continued)
        left: list[Message] = self._leave_page() if closes_rollout and self._begins_pages else []
        self._reported_at = self.loop.times.clock()
        self._channel.send(commit, *left, progress)

    def _leave_page(self) -> list[Message]:
        """Goes on in the next page if that has come; returns the message for the one before.

        With it behind the commit, the collector leases a page and writes below the last step before it makes the batch.
        """
        message = self._writer.page_return
        if message is None or not (self._inbox.has_page and self._writer.has_final_rows):
            return []
        self._writer.begin_block()
        return [message]

    def _progress(
        self, counts: StepCounts, *, closes_rollout: bool, continued: Sequence[int] = ()
    ) -> Progress:
        return Progress(
            counts=counts,
            closes_rollout=closes_rollout,
            resets=self._inbox.resets.done,
            all_wait=self.loop.all_wait,
            seconds=self.loop.times.take(),
            continued=tuple(continued),
        )

    def _flush(self) -> None:
        if not self.loop.has_writer:
            return
        if self._staged is not None:
            self._staged.flush()
        elif self.loop.writer.has_news:
            self._report(closes_rollout=False)

    def note_taken(self) -> None:
        """Notes also the transitions of a step that raised after they were recorded."""
        # Rules: collectors CX3
        self._last_step.taken = self.loop.taken

    # ---- between two steps -----------------------------------------------------------------------------------------

    def _process_messages(self, *, may_pause: bool) -> None:
        """Processes messages between two steps; unless `may_pause`, a pause waits for the end of the rollout."""
        inbox = self._inbox
        inbox.interrupts = False
        if inbox.ends:
            raise Ending
        begin = self.loop.times.clock()
        self._answer_questions()
        if may_pause:
            self._pause_if_asked()
        self.loop.times.note("wait", begin)
        while inbox.resets:
            self._reset_also(np.zeros(self.loop.stepper.num_envs, np.bool_))

    def _reset_also(self, chosen: NDArray[np.bool_]) -> None:
        """Resets environments where `chosen`, bool[n], and those of all resets that were asked for, each once."""
        # Rules: collectors CS5. Inline they are reset together, too.
        seeds = None
        asked = self._inbox.resets.take(chosen)
        if asked is not None:
            self._seeds.use(asked.seed)
            seeds = asked.seeds
        self._begin_anew(None if chosen.all() else np.flatnonzero(chosen), seeds)

    def _begin_anew(self, envs: Indices | None, seeds: list[int] | None) -> None:
        """Ends the trajectories of environments (None: of all) after their last steps, and resets them."""
        # Rules: collectors CR6, CS6, CQ2
        inbox, loop = self._inbox, self.loop
        # Written rows are sent first, because the reply brings the pages for the final rows of the cut.
        self._flush()
        (loop if self._staged is None else self._staged).cut(envs)
        self._flush()
        # Until then the collector may read this row as what followed the last step.
        self._wait_for(lambda: inbox.acked == self._writer.sequence)
        loop.reset(seeds, envs)

    def _take_hooks(self) -> None:
        # Rules: collectors CH1
        pickled, self._inbox.hooks = self._inbox.hooks, None
        if pickled is None:
            return
        self._hooks.pre, self._hooks.post = cloudpickle.loads(pickled)
        if self._hooks.post is None:
            self._copy = None
        elif self._copy is None and self._staged is None:
            from headrace.collectors.worker.rollout_copy import RolloutCopy

            self._copy = RolloutCopy(self.loop, self._idx, self._signature)

    def _pause_if_asked(self) -> None:
        inbox = self._inbox
        number = inbox.pause
        if number is None:
            return
        self._flush()
        self._channel.send(Paused(number=number))
        self._wait_for(lambda: inbox.pause != number)

    def _wait_for(self, there: Callable[[], bool]) -> None:
        """Waits as `WorkerInbox.wait_for` does, and answers questions meanwhile."""
        inbox = self._inbox
        while not there():
            inbox.wait_for(lambda: bool(inbox.questions) or there())
            self._answer_questions()

    def _answer_questions(self) -> None:
        """Answers the questions that have come, in their order."""
        questions = self._inbox.questions
        while questions:
            answer, payload = self._own.answer(*questions.popleft())
            self._channel.send(answer, payload=payload)
            if self._own.has_loaded:
                self._own.has_loaded = False
                self._open_rows_anew()

    def _open_rows_anew(self) -> None:
        """Begins with other rows after a state was loaded.

        Raises:
            Loaded: the caller goes on between two rollouts.
        """
        self._inbox.rollouts.clear()
        self._channel.send(MoreColumns(signature=self.loop.signature.to_json(), is_loaded=True))
        # A rollout of the state keeps its weights, unless the next turn says otherwise.
        self._updates_each_step = False
        self._open_rows()
        if self._copy is not None:
            self._copy = type(self._copy)(self.loop, self._idx, self._signature)
        self._inbox.interrupts = True  # The resets of the state wait for the next step.
        raise Loaded

    def finish(self) -> None:
        """Reports the last steps, and closes the environments unless the collector keeps them open."""
        self.loop.end_profile()
        stop = self._inbox.stop
        if stop is not None:
            self._flush()
        if stop is None or stop.close_env:
            self.loop.stepper.close()
        if stop is not None:
            self._channel.send(Goodbye())
