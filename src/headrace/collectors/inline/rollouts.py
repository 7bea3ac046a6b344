"""Rollouts of one loop in this process: made into batches, and written into a replay."""

# Rules: collectors CB1, CR4, CR6, CF2, CQ2, CQ3, CX1

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.clock import SYSTEM_CLOCK
from headrace.collectors.batches.batch import Batch
from headrace.collectors.batches.batch_maker import BatchMaker
from headrace.collectors.batches.episode_numbering import EpisodeNumbering
from headrace.collectors.batches.stored_columns import StoredColumns
from headrace.collectors.batches.view_columns import ViewColumns
from headrace.collectors.inline.replay_output import ReplayOutput
from headrace.collectors.inline.step_turns import StepTurns
from headrace.collectors.inline.under_way import RolloutUnderWay
from headrace.collectors.inline.unreturned import UnreturnedBatch
from headrace.collectors.inline.writer_output import WriterOutput, output_to
from headrace.collectors.loop.collecting import CollectingLoop
from headrace.collectors.loop.columns import warn_not_stored
from headrace.collectors.loop.hooks import CollectHooks
from headrace.collectors.loop.local_rows import LocalRows
from headrace.collectors.loop.step_counts import StepCounts
from headrace.collectors.loop.turn import RolloutTurn
from headrace.collectors.loop.waiting import ALL_WAIT
from headrace.collectors.options import CollectorOptions, warn_of_rounding
from headrace.collectors.saved.inline_state import inline_state
from headrace.collectors.states import check_num_envs, check_parts, check_weights, load_weights, saved_weights
from headrace.collectors.statistics import Tally
from headrace.collectors.updates.inline import InlineWeights
from headrace.collectors.updates.numbering import Versions
from headrace.collectors.updates.updater import WeightUpdater
from headrace.envs.protocol import Indices
from headrace.errors import DeadlineExceeded, StoreFull


class InlineRollouts:
    """Collects rollouts one after another. It does not refer to the collector, which can be forgotten.

    One thread at a time begins, steps and completes a rollout; the resets of a user may be asked for by any thread.

    Args:
        options: of the collector.
        versions: of the collector.
        tally: of the collector.
        turns: of the threads that use the loop.

    Attributes:
        loop: steps the environments.
        weights: of the policy.
        updater: publishes new ones.
        hooks: of the user.
        output: writes into the replay; None: there is none.
        writes_whole: whether rollouts are written into the replay as a whole, because their rows change in the end.
        is_begun: whether a rollout is under way.
        turn: how far it is.
        unreturned: a complete batch; the call that returns it sets this to None.
        seeds: of the reset that comes before the next rollout; None: unseeded.
    """

    def __init__(self, options: CollectorOptions, versions: Versions, tally: Tally, turns: StepTurns) -> None:
        self._tally = tally
        self._turns = turns
        self._random_frames = options.random_frames
        self.loop = loop = CollectingLoop(options.task(), _weakly(self._take_weights))
        num_envs = loop.stepper.num_envs
        try:
            warn_of_rounding(options.frames_per_batch, loop.steps * num_envs, num_envs, stacklevel=3)
            self.weights = InlineWeights(
                loop.policy, options.model_ids, loop.times, options.devices()[0].policy
            )
            self.updater = WeightUpdater(self.weights, versions, options.schemes, options.policy)
            self._prepare(options)
        except BaseException as error:
            loop.abandon(error)
            raise

    def _prepare(self, options: CollectorOptions) -> None:
        loop, num_envs = self.loop, self.loop.stepper.num_envs
        self.hooks = CollectHooks()
        self.is_begun, self.turn = False, RolloutTurn()
        # Real transitions of it that were flushed.
        self._written = 0
        # Counts of its steps that were reported and are not in the tally.
        self._counts = StepCounts()
        # The rollout of a loaded state with which the next one goes on.
        self._loaded: RolloutUnderWay | None = None
        self.seeds: list[int] | None = None
        self.unreturned: UnreturnedBatch | None = None
        views = ViewColumns(loop.views, num_envs)
        self._maker = BatchMaker(num_envs, EpisodeNumbering(num_envs), views, marks=loop.marks)
        # None: no rollout was begun since the last failure.
        self._rows: LocalRows | None = None
        # Whether the rollout under way is to be dropped; `next` says so while it takes steps.
        self._must_reset, self._is_stepping = True, False
        # bool[n], environments to be reset before the next step, and whether there are any.
        self._to_reset, self._is_reset_due = np.zeros(num_envs, np.bool_), False
        self._asking = threading.Lock()
        self._idle_since: float | None = None
        self.output: ReplayOutput | WriterOutput | None = None
        self._stored: StoredColumns | None = None
        if options.replay_buffer is not None:
            self.output = output_to(options.replay_buffer, num_envs, loop.observed, options.rules())
            if options.postproc is not None:
                self._stored = StoredColumns(options.postproc, loop.views)
        self.writes_whole = self.output is not None and (self._stored is not None or loop.marks is not None)

    def _take_weights(self) -> int:
        """Takes over new weights before a step; returns the number of those that act."""
        if self.updater.receivers.have_news:
            self.updater.receive()
        return self.weights.take_over()

    # ---- one rollout -----------------------------------------------------------------------------------------------

    def next(self, until: float | None) -> Batch | None:
        """Collects one rollout and returns its batch; None when `total_frames` were handed out.

        Args:
            until: time of the system's clock after which no further step is taken; None: no limit.

        Raises: as `Collector.next`.
        """
        loop = self.loop
        if (batch := self._taken_up()) is not None:
            return batch
        if self.is_complete():
            self.end_trajectories()
            return None
        if self._idle_since is not None:
            loop.times.note("wait", self._idle_since)
            self._idle_since = None
        with self.weights.collecting():
            if self._must_reset:
                self.drop()
            if not self.is_begun:
                self.begin()
            self._must_reset = self._is_stepping = True  # Until this call ends: Ctrl-C may come anywhere.
            try:
                if self._step_until(until):
                    batch = self.complete()
            except BaseException:
                if self.is_begun:  # Else the next call returns the batch.
                    self.fail()
                else:
                    self._must_reset = self.seeds is not None
                raise
            finally:
                self._is_stepping = False
            self._must_reset = self.seeds is not None  # The policy may have called `set_seed` meanwhile.
        if batch is not None:
            self._end_if_complete()
        self._idle_since = loop.times.clock()
        if batch is None:
            raise DeadlineExceeded(
                f"next: {self.turn.left} of {loop.steps} steps of the rollout are left; the next call goes on with it"
            )
        return batch

    def _taken_up(self) -> Batch | None:
        """Returns the batch that an earlier call of this thread did not return, because Ctrl-C came; None: none."""
        unreturned = self.unreturned
        if unreturned is None or not unreturned.is_of_this_thread:
            return None
        self._count(unreturned)
        self._end_if_complete()
        return unreturned.batch

    def _count(self, unreturned: UnreturnedBatch) -> None:
        if unreturned.counts is not None:
            self._tally.add(unreturned.counts, 1)

    def _end_if_complete(self) -> None:
        if self.is_complete():
            with suppress(StoreFull):  # The batch is complete; the next call tries again, and raises.
                self.end_trajectories()

    def _step_until(self, until: float | None) -> bool:
        """Takes the steps of the rollout under way, but only one after this time; returns whether they are complete."""
        turn, turns = self.turn, self._turns
        while turn.left:
            if turns.is_asked:
                turns.give_way()
            self.step()
            if until is not None and turn.left and SYSTEM_CLOCK.monotonic() >= until:
                return False
        return True

    def begin(self) -> None:
        """Begins a rollout, after the resets that were asked for, or goes on with that of a loaded state.

        Raises:
            RuntimeError: every environment waits for a reset.
            Exception: raised by a hook, an environment or the policy.
        """
        loop, loaded = self.loop, self._loaded
        if loaded is None:
            try:
                self.hooks.before()
            except BaseException:
                self._must_reset = True
                raise
            self._reset_as_asked()
        self._must_reset = True  # Until the rollout is begun: Ctrl-C may come anywhere.
        at_random = loop.frames_begun < self._random_frames if loaded is None else loaded.turn.at_random
        has_learned = not at_random and loop.learn_columns()
        if has_learned and loop.not_stored:
            warn_not_stored(loop.not_stored, stacklevel=4)
        if has_learned or self._rows is None:
            self._rows = LocalRows(loop, self._maker, self._rows)
        self._rows.continue_after(None if loaded is None else loaded.steps)
        if loaded is None:
            loop.begin(at_random=at_random)
            self._counts = StepCounts()
            self.turn.begin(loop.steps, at_random=at_random)
        else:
            loop.resume(loaded.turn.left, at_random=at_random, frames=loaded.counts.frames)
            self._counts = loaded.counts
            self.turn.begin(loaded.turn.left, at_random=at_random)
        self._loaded, self.is_begun, self._must_reset = None, True, self.seeds is not None
        self._written = 0

    def step(self) -> None:
        """Takes one step of the rollout under way, after the resets that were asked for."""
        if self._is_reset_due:
            self._reset_due()
        self.loop.step()
        self.turn.left -= 1

    def complete(self) -> Batch:
        """Writes the last steps of a rollout into the replay, and counts them; returns its batch."""
        loop = self.loop
        batch, steps, counts = self._present_rows.complete(self.hooks)
        if self.output is not None:
            begin = loop.times.clock()
            following = loop.following()
            if self._stored is not None:
                batch, steps, following = self._stored.of(batch, steps, following)
            self.output.write(steps, following)
            loop.times.note("write", begin)
        loop.end()
        self._tally.add_seconds(loop.times.take())
        self._counts.add(counts)
        unreturned = UnreturnedBatch(batch, self._counts, threading.get_ident())
        # No call between these: Ctrl-C drops the rollout, or leaves its batch to the next call
        # (test_interrupts_of_batches.py).
        self.unreturned = unreturned
        self.is_begun, self._must_reset = False, self.seeds is not None
        self._count(unreturned)
        return batch

    def flush(self) -> None:
        """Writes the newest steps of the rollout under way into the replay."""
        loop = self.loop
        assert self.output is not None
        steps, counts = self._present_rows.add()
        begin = loop.times.clock()
        self.output.write(steps, loop.following())
        loop.times.note("write", begin)
        self._tally.add_seconds(loop.times.take())
        self._tally.add(counts, 0)
        self._written += counts.frames

    @property
    def _present_rows(self) -> LocalRows:
        assert self._rows is not None
        return self._rows

    def is_complete(self) -> bool:
        """Whether `total_frames` were handed out (free-running: written)."""
        return self._tally.is_complete()

    def end_trajectories(self) -> None:
        """Stores the final rows of the open trajectories, as no step will follow."""
        if self.output is not None:
            self.output.cut()

    # ---- resets ----------------------------------------------------------------------------------------------------

    def seed(self, seeds: list[int]) -> None:
        """Lets the next rollout begin with a reset of all environments with these seeds."""
        with self._asking:
            self.seeds, self._must_reset = seeds, True

    def reset(self, envs: Indices | None) -> None:
        """Lets a reset of these environments (None: of all) come before their next step."""
        with self._asking:
            self._to_reset[slice(None) if envs is None else envs] = True
            self._is_reset_due = True

    def fail(self) -> None:
        """Drops the rollout under way (see `drop`): the next one begins with a reset of all environments."""
        self._must_reset = True
        self.drop()

    def drop(self) -> None:
        """Discards the rollout under way, or that of a loaded state, if there is one; flushed steps stay."""
        if self._loaded is not None:
            self._tally.discard(self._loaded.counts.frames)
            self._loaded = None
        if self.is_begun:
            self.is_begun = False
            self._tally.discard(self.loop.frames - self._written)

    def _reset_as_asked(self) -> None:
        """Does the resets before a rollout."""
        loop = self.loop
        if self._must_reset:
            self._restart()
        elif loop.must_reset:
            self._begin_anew(np.ones(loop.stepper.num_envs, np.bool_))
        elif self._to_reset.any():
            self._reset_due()
        elif loop.all_wait:
            raise RuntimeError(ALL_WAIT)

    def _restart(self) -> None:
        """Resets all environments: at the start, after a failure and after `set_seed`."""
        self._rows = None
        self.end_trajectories()
        self._note_resets(np.ones_like(self._to_reset))
        seeds = self.seeds
        self.loop.restart(seeds)
        with self._asking:
            if self.seeds is seeds:  # Else another thread has asked for others meanwhile.
                self.seeds = None
            self._must_reset = self.seeds is not None

    def _reset_due(self) -> None:
        self._begin_anew(self._to_reset.copy())

    def _begin_anew(self, chosen: NDArray[np.bool_]) -> None:
        """Ends the trajectories of environments where `chosen`, bool[n], after their last steps, and resets them."""
        loop, rows = self.loop, self._rows
        envs = None if chosen.all() else np.flatnonzero(chosen)
        # The steps of the rollout under way are written later, with their ends.
        if self.output is not None and not (rows is not None and rows.has_steps):
            self.output.cut(envs)
        must_reset, self._must_reset = self._must_reset, True  # Until all are reset.
        self._note_resets(chosen)
        (loop if rows is None else rows).cut(envs)
        loop.reset(None, envs)
        self._must_reset = must_reset

    def _note_resets(self, chosen: NDArray[np.bool_]) -> None:
        """Notes that resets take place: what another thread asks for meanwhile comes after them."""
        with self._asking:
            self._to_reset &= ~chosen
            self._is_reset_due = bool(self._to_reset.any())

    # ---- state -----------------------------------------------------------------------------------------------------

    @property
    def has_state_between_batches_alone(self) -> bool:
        """Whether a rollout under way has no state: it goes into the replay as a whole, or a seed waits for its end."""
        return self.writes_whole or self.seeds is not None

    def state_dict(self) -> dict[str, Any]:
        """Returns everything that the next steps depend on, and the steps of the rollout under way.

        Raises:
            RuntimeError: that rollout is to be written into the replay as a whole.
        """
        with self.weights.collecting():  # Of new weights either all or none are part of it.
            self.weights.take_over()
            if self._must_reset and not self._is_stepping:
                self.drop()
                self._restart()
            rollout, unreturned = self._under_way(), self.unreturned
            if unreturned is not None and unreturned.is_of_this_thread:
                self._count(unreturned)
            else:
                unreturned = None
            return {
                "unreturned": None if unreturned is None else dict(unreturned.batch),
                "rollout": None if rollout is None else rollout.state_dict(),
                "loop": self.loop.state_dict(),
                **self._maker.state_dict(),
                "tally": self._tally.state_dict(),
                "versions": self.updater.state(),
                "to_reset": self._to_reset.copy(),
                "weights": saved_weights(self.loop.policy),
            }

    def _under_way(self) -> RolloutUnderWay | None:
        if not self.is_begun:
            return self._loaded
        if self.writes_whole:
            raise RuntimeError(
                "state_dict: next(timeout) has left a rollout that is not complete, and it goes into the replay as a "
                "whole, because of postproc, or set_truncated with several agents; call next() first"
            )
        counts = StepCounts()
        for each in (self._counts, self._present_rows.hold()):
            counts.add(each)
        return RolloutUnderWay(self.turn, self._present_rows.partial(), counts)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from a state.

        Raises:
            ValueError: not the state of a collector with the same arguments.
            SpecError: weights that do not fit the policy.
        """
        check_parts(
            state,
            (
                "loop",
                "rollout",
                "unreturned",
                "numbering",
                "views",
                "tally",
                "versions",
                "to_reset",
                "weights",
            ),
        )
        loop, policy = state["loop"], self.loop.policy
        check_num_envs(loop, self.loop.stepper.num_envs)
        inline_state(self.loop)("", state)
        if self._must_reset:  # Environments that were never reset might refuse any state.
            self.drop()
            self._restart()
        self.loop.check_state("loop", loop)
        check_weights(policy, state["weights"])
        self.drop()
        self._must_reset = True  # Until all is restored: Ctrl-C may come anywhere.
        self._rows = None
        self.end_trajectories()
        load_weights(policy, state["weights"])
        continues = self.loop.load_state_dict(loop)
        self._maker.load_state_dict(state)
        self._tally.load_state_dict(state["tally"])
        columns = state["unreturned"]
        self.unreturned = None if columns is None else UnreturnedBatch(self._maker.restored(columns))
        self.updater.load_state(state["versions"])
        self._to_reset[:] = state["to_reset"]
        self._is_reset_due = bool(self._to_reset.any())
        self.seeds = None if continues else loop["fresh_seeds"]
        if state["rollout"] is not None:
            self._loaded = RolloutUnderWay.from_state(state["rollout"])
            if not continues:  # The rollout goes on with fresh episodes.
                self._restart()
                continues = True
        self._must_reset = not continues


def _weakly(method: Callable[[], int]) -> Callable[[], int]:
    """Returns a function that calls a bound method, and does not keep its object alive."""
    weak = weakref.WeakMethod(method)

    def call() -> int:
        bound = weak()
        assert bound is not None
        return bound()

    return call
