"""Collecting in this process."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from headrace.collectors.batch import Batch
from headrace.collectors.blocks import EpisodeNumbering
from headrace.collectors.failures import collector_home
from headrace.collectors.local_rows import LocalRows
from headrace.collectors.loop import CollectingLoop
from headrace.collectors.options import CollectorOptions
from headrace.collectors.replay_columns import (
    check_columns,
    check_filled,
    collected_signature,
    not_stored,
    warn_not_stored,
)
from headrace.collectors.replay_output import ReplayOutput
from headrace.collectors.statistics import CollectorStatistics, Tally
from headrace.collectors.step_sink import StepSink
from headrace.collectors.weight_arguments import WeightCheck, given_weights
from headrace.envs import environment_seeds, is_environment, make_stepper, new_columns
from headrace.envs.protocol import Autoreset
from headrace.errors import Closed, StoreFull
from headrace.replay.public import core_of
from headrace.spec import ArraySpec
from headrace.tables.description.rules import ItemRule
from headrace.weights import apply_weights

_log = logging.getLogger(__name__)


class Collector:
    """Collects batches in this process, only when asked.

    Args:
        create_env_fn: a callable that gives an environment, a ready environment, or the id of a registered one.
        policy: a callable on batched observations `[n, ...]` that returns actions `[n, ...]`, or the pair of actions
            and a dict of further columns; a torch module; None acts at random.
        policy_factory: makes the policy.
        frames_per_batch: frames of one batch; rounded up to a whole number of steps.
        total_frames: where to stop, a multiple of `frames_per_batch`; -1 goes on for ever.
        create_env_kwargs: keyword arguments of `create_env_fn`.
        max_frames_per_traj: a trajectory that gets this long is truncated and its copy reset.
        init_random_frames: actions are random while fewer frames were begun.
        replay_buffer: also write every step into this replay.
        items: which items they become; by default every transition one in each table, once its next observation is
            stored (`ItemRule(table, length=1, lookahead=1)`).
        num_envs: copies of a single environment.
        info_columns: entries of `info` to keep as columns, and what they look like, such as
            `{"action_mask": hr.ArraySpec(2, "int8")}`. Each must come with every reset and step, and stands in the row
            of the observation that it came with.
        seed: see `set_seed`.

    Raises:
        ValueError, TypeError, KeyError: an argument that does not fit, before anything runs.
        SpecError: a replay that lacks columns.

    >>> with Collector("CartPole-v1", frames_per_batch=20, num_envs=4, seed=0) as collector:
    ...     batch = next(iter(collector))
    >>> batch.shape, batch["observation"].shape
    ((4, 5), (4, 5, 4))
    """

    def __init__(
        self,
        create_env_fn: Any,
        policy: Any = None,
        *,
        policy_factory: Callable[[], Any] | None = None,
        frames_per_batch: int,
        total_frames: int = -1,
        create_env_kwargs: Mapping[str, Any] | None = None,
        max_frames_per_traj: int | None = None,
        init_random_frames: int | None = None,
        replay_buffer: Any = None,
        items: Sequence[ItemRule] | None = None,
        num_envs: int = 1,
        info_columns: Mapping[str, ArraySpec] | None = None,
        seed: int | None = None,
    ) -> None:
        self._options = CollectorOptions(
            create_env_fn=create_env_fn,
            policy=policy,
            policy_factory=policy_factory,
            frames_per_batch=frames_per_batch,
            total_frames=total_frames,
            create_env_kwargs=create_env_kwargs,
            max_frames_per_traj=max_frames_per_traj,
            init_random_frames=init_random_frames,
            replay_buffer=replay_buffer,
            items=items,
            num_envs=num_envs,
            info_columns=info_columns,
            seed=seed,
        )
        self._home = collector_home()
        self._closed = False
        self._tally = Tally()
        self._policy = policy_factory() if policy_factory is not None else policy
        self._version = 0
        self._begun = 0
        self._stepper = make_stepper(
            create_env_fn, create_env_kwargs=create_env_kwargs, num_envs=num_envs, info_columns=info_columns
        )
        try:
            self._options.warn_of_rounding(self._stepper.num_envs, stacklevel=2)
            self._prepare()
        except BaseException:
            if not is_environment(create_env_fn):  # A ready one stays open: the caller may try again.
                self._stepper.close()
            raise

    def _prepare(self) -> None:
        options, stepper = self._options, self._stepper
        self._loop = CollectingLoop(
            stepper,
            self._policy,
            max_frames_per_traj=options.max_frames_per_traj,
            refresh=lambda: self._version,
        )
        self._numbering = EpisodeNumbering(stepper.num_envs)
        self._steps = options.steps(stepper.num_envs)
        self._observed = frozenset(stepper.observation_signature.columns)
        # The observations that the next rollout begins with, after a reset of all environments.
        self._first = new_columns(stepper.observation_signature, stepper.num_envs)
        self._extras: Mapping[str, ArraySpec] | None = None
        # None: none was begun since the last failure.
        self._rows: LocalRows | None = None
        self._sink: StepSink | None = None
        self._must_reset = True
        self._weight_check: WeightCheck | None = None
        self._seeds: list[int] | None = None
        if options.seed is not None:
            self.set_seed(options.seed)
        self._output: ReplayOutput | None = None
        replay = options.replay_buffer
        if replay is not None:
            check_columns(replay.signature, self._signature({}))
            self._output = ReplayOutput(core_of(replay), stepper.num_envs, self._observed, options.rules())

    # ---- batches ---------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        batch = self.next()
        if batch is None:
            raise StopIteration
        return batch

    def next(self, timeout: float | None = None) -> Batch | None:  # noqa: ARG002 - the interface of all collectors
        """Collect one batch; None when `total_frames` were handed out. An inline collector never waits.

        Raises:
            Closed: after `shutdown`.
            Exception: what the environment or the policy raised, and StoreFull of a replay. The rollout under way is
                lost; the next call resets all copies.
        """
        self._check_open()
        if self._is_complete():
            self._end_trajectories()
            return None
        sink = self._begin_rollout()
        self._must_reset = True  # Unless a batch comes of the rollout: Ctrl-C may end it anywhere.
        try:
            batch = self._collect(sink)
        except BaseException:
            self._tally.frames_discarded += sink.frames
            raise
        self._must_reset = self._seeds is not None  # The policy may have called `set_seed` meanwhile.
        if self._is_complete():
            with suppress(StoreFull):  # The batch is complete; the next call tries again, and raises.
                self._end_trajectories()
        return batch

    def _collect(self, sink: StepSink) -> Batch:
        """Fills a rollout that was begun; returns its batch, and writes it into the replay."""
        assert self._rows is not None
        at_random = self._begun < self._options.random_frames
        self._begun += self._steps * self._stepper.num_envs
        for _ in range(self._steps):
            self._loop.step(sink, at_random=at_random)
        is_open = sink.writer.is_open
        commit = sink.report()
        batch = self._rows.finish(commit)
        if self._output is not None:
            steps = self._rows.steps_of(commit)
            self._output.write(steps, is_open, {name: row.copy() for name, row in sink.row.items()})
        times = self._loop.times
        self._tally.note_seconds((times.env, times.policy, times.write))
        self._tally.add_batch(batch, sink.episodes, self._version)
        return batch

    def _check_open(self) -> None:
        self._home.check()
        if self._closed:
            raise Closed("the collector is shut down")

    def _is_complete(self) -> bool:
        """Whether `total_frames` were handed out."""
        return 0 < self._options.total_frames <= self._tally.frames

    def _end_trajectories(self) -> None:
        """Stores the final rows of the open trajectories, as no step will follow."""
        if self._output is not None:
            self._output.cut()

    def _begin_rollout(self) -> StepSink:
        if self._must_reset:
            self._reset()
        row = self._first if self._sink is None else self._sink.row
        acts = self._begun >= self._options.random_frames
        try:
            if acts and self._extras is None:
                self._extras = self._loop.probe(row)
                self._check_extras(self._extras)
                self._sink = self._new_sink(row)
            elif self._sink is None:
                self._sink = self._new_sink(row)
        except BaseException:
            self._must_reset, self._extras = True, None
            raise
        self._sink.begin_report()
        return self._sink

    def _reset(self) -> None:
        """At the start, after a failure and after `set_seed`: every environment begins an episode."""
        # Rules: collectors CX1
        self._rows = self._sink = None
        if self._output is not None:
            self._output.cut()
        self._loop.reset(self._first, self._seeds)
        self._must_reset, self._seeds = False, None

    def _signature(self, extras: Mapping[str, ArraySpec]) -> Any:
        return collected_signature(
            self._stepper.observation_signature, self._stepper.action_signature, extras
        )

    def _check_extras(self, extras: Mapping[str, ArraySpec]) -> None:
        """Compare the columns that the policy adds with those of the replay."""
        replay = self._options.replay_buffer
        if replay is not None:
            signature = self._signature(extras)
            check_columns(replay.signature, signature, extras)
            check_filled(replay.signature, signature)
            if names := not_stored(replay.signature, extras):
                warn_not_stored(names, stacklevel=4)

    def _new_sink(self, row: Mapping[str, Any]) -> StepSink:
        """Rows of the columns that are known now; episodes that are under way go on."""
        num_envs = self._stepper.num_envs
        signature = self._signature(self._extras or {})
        rows = LocalRows(signature, self._observed, self._steps, num_envs, self._numbering, self._rows)
        rows.writer.begin(row)
        self._rows = rows
        if self._sink is None:
            return StepSink(rows.writer, num_envs)
        self._sink.writer = rows.writer
        return self._sink

    # ---- weights and seeds -----------------------------------------------------------------------------------------

    @property
    def policy_version(self) -> int:
        """The number of the newest set of weights: 0 at the start, one more with every update."""
        self._home.check()
        return self._version

    def update_policy_weights_(
        self, policy_or_weights: Any = None, *, weights: Any = None, policy: Any = None
    ) -> None:
        """Give the policy new weights; they act from the next step on.

        Args:
            policy_or_weights: an object with `state_dict()`, or a tree of arrays. None: the policy itself, whose
                weights were changed in place.
            weights, policy: the same, by name; only one of the three.

        Raises:
            ValueError: more than one source; none, and the policy was made by a factory.
            SpecError: names, shapes or dtypes differ; nothing is changed.
            TypeError: a policy without `state_dict` and `load_state_dict`.
            Closed: after `shutdown`.
        """
        self._check_open()
        values = given_weights(policy_or_weights, weights, policy, self._options.policy)
        if self._weight_check is None:
            self._weight_check = WeightCheck.of(self._policy)
        self._weight_check(values)
        apply_weights(self._policy, values)
        self._version += 1

    def set_seed(self, seed: int, static_seed: bool = False) -> int:
        """Seed every copy: copy k gets `seed + k`, or all the same; all are reset with it.

        Returns:
            The seed of the last copy.
        """
        # Rules: collectors CS1, CS2
        self._home.check()
        self._seeds = environment_seeds(seed, self._stepper.num_envs, static_seed=static_seed)
        self._must_reset = True
        return self._seeds[-1]

    # ---- about -----------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return number_of_batches(
            self._options.total_frames,
            self._steps * self._stepper.num_envs,
            self._stepper.autoreset,
        )

    def __bool__(self) -> bool:
        return True

    @property
    def env(self) -> Any:
        """The first environment."""
        return self._stepper.environments[0]

    @property
    def policy(self) -> Any:
        """The policy that acts."""
        return self._policy

    @property
    def replay_buffer(self) -> Any:
        """The replay that is written to, or None."""
        return self._options.replay_buffer

    def statistics(self) -> CollectorStatistics:
        """A frozen record of what was done."""
        self._home.check()
        return self._tally.record(running=False, paused=False)

    def shutdown(
        self,
        timeout: float | None = None,  # noqa: ARG002 - the interface of all collectors
        close_env: bool = True,
        raise_on_error: bool = True,
    ) -> None:
        """End the open trajectories in the replay, close the writer and (unless told not to) the environments.

        Each open trajectory gets a final row with its newest observation, so its last transitions become items too.
        Items that wait for a rate limiter stay queued in their tables. More calls do nothing.

        Args:
            timeout: for collectors with workers.
            close_env: False leaves the environments open.
            raise_on_error: False logs a StoreFull.

        Raises:
            StoreFull: no free page for the final rows; after all is released.
        """
        if self._closed or self._home.is_elsewhere:
            return
        self._closed = True
        try:
            if self._output is not None:
                self._output.close()
        except StoreFull as error:
            if raise_on_error:
                raise
            _log.error("shutdown: the final rows of open trajectories are missing: %s", str(error))
        finally:
            if close_env:
                self._stepper.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown(raise_on_error=kind is None)

    def __repr__(self) -> str:
        return f"<Collector of {self._stepper.num_envs} environments, {self._tally.frames} frames>"


def number_of_batches(total_frames: int, frames: int, autoreset: str) -> int:
    """Returns the total number of batches of `frames_per_batch` frames.

    Raises:
        TypeError: `total_frames` is -1, so there is no last batch; or the autoreset mode is NEXT_STEP, so the number
            depends on the lengths of the episodes.
    """
    # Rules: collectors CB10
    if total_frames < 0:
        raise TypeError("this collector has no end: total_frames is -1")
    if autoreset == Autoreset.NEXT_STEP:
        raise TypeError(
            "the number of batches is not known before the end: with autoreset NEXT_STEP a reset takes a step, which "
            "does not count towards total_frames"
        )
    return -(-total_frames // frames)
