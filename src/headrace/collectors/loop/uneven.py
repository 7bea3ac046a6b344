"""One step of n environments that are stepped asynchronously: the policy acts for those that are ready.

A vector step is recorded when each environment has its row of it. Fast environments go on meanwhile: their rows are
kept for the vector steps to come.
"""

# Rules: collectors CE2, CE4, CR5, CR8, CW4

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

import numpy as np

from headrace.collectors.loop.actor import Actor
from headrace.collectors.loop.lane_buffer import BEGINS, DROPPED, RESET_STEPS, LaneBuffer
from headrace.collectors.loop.recording import Columns, RecordingStepper
from headrace.collectors.loop.times import LoopTimes
from headrace.envs.protocol import NO_ENVS, AsyncStepper, Indices, StepResult, VectorStepper
from headrace.leases.page_writer import PageWriter
from headrace.spec import ArraySpec

# Memory of the rows that fast environments may be ahead.
_MOST_BYTES = 1 << 28


class UnevenStepper(RecordingStepper):
    """A `RecordingStepper` over environments of which some are ready at a time.

    A result comes only while at least `batch_size` environments step. Beyond these, an environment is given an action
    only if it is less than a rollout ahead of the slowest one. Each reset takes a row, that of the limit, too.

    Args:
        stepper: the environments.
        actor, max_frames_per_traj, set_truncated, refresh, times: see `RecordingStepper`.
        steps: of a rollout.
    """

    def __init__(
        self,
        stepper: AsyncStepper,
        actor: Actor | None,
        *,
        max_frames_per_traj: int | None,
        set_truncated: bool,
        refresh: Callable[[], int],
        times: LoopTimes,
        steps: int,
    ) -> None:
        super().__init__(
            cast("VectorStepper", stepper),  # The resets and steps of the base are replaced here.
            actor,
            max_frames_per_traj=max_frames_per_traj,
            set_truncated=set_truncated,
            refresh=refresh,
            times=times,
        )
        if actor is not None and actor.has_views:
            raise ValueError(
                "views: expected none that are fed to the policy, for an EnvPool whose batch_size is below num_envs: "
                "its environments are at different steps; used_for_compute_actions=False shows them in batches alone"
            )
        self._pool = stepper
        observed, num_envs = stepper.observation_signature, stepper.num_envs
        depth = max(1, min(steps, _MOST_BYTES // (num_envs * max(1, observed.nbytes))))
        self._buffer = LaneBuffer(observed.columns, num_envs, depth)
        # Environments whose episode is over at the limit, which they do not know.
        self._is_cut = np.zeros(num_envs, np.bool_)

    # ---- resets ----------------------------------------------------------------------------------------------------

    def reset(self, row: Columns, seeds: Sequence[int] | None = None, envs: Indices | None = None) -> None:  # noqa: ARG002 - see below
        """Begins a reset of environments (None: all); their part of `row` is written before their next step.

        Rows that these environments are ahead are dropped.
        """
        if seeds is not None:
            self._random.seed(seeds)
        if self._actor is not None:
            self._actor.reset(envs)
        lanes = np.arange(self._num_envs) if envs is None else envs
        buffer, busy = self._buffer, self._pool.is_busy[lanes]
        buffer.drop(lanes)
        self._lengths[lanes] = 0
        self._is_cut[lanes] = False
        buffer.expect(lanes[busy & (buffer.states[lanes] != BEGINS)], DROPPED)
        self._send_reset(lanes[~busy], BEGINS, seeds)

    def _send_reset(self, envs: Indices, state: int, seeds: Sequence[int] | None = None) -> None:
        if envs.size:
            begin = self._times.clock()
            self._buffer.expect(envs, state)
            self._pool.send_reset(envs, seeds)
            self._times.note("env", begin, "env_reset")

    # ---- steps -----------------------------------------------------------------------------------------------------

    def probe(self, row: Columns) -> Mapping[str, ArraySpec]:  # noqa: ARG002 - the buffer has the observations
        """Returns the further columns of the policy, which acts for the environments that are ready."""
        if self._actor is None:
            return {}
        while self._pool.is_busy.all():
            self._receive()
        self._act_for(np.flatnonzero(~self._pool.is_busy), at_random=False)
        return self._actor.extras

    def step(self, writer: PageWriter, *, at_random: bool) -> int:
        """Records one vector step; the environments step until each has its row of it."""
        buffer, times, pool = self._buffer, self._times, self._pool
        while not buffer.is_ready:
            self._act_for(buffer.choose(pool.is_busy, pool.batch_size), at_random=at_random)
            self._receive()
        begin = times.clock()
        buffer.show_new(writer.row)
        following = buffer.following
        for name, column in writer.next_row.items():
            column[...] = following[name]
        resets, values = buffer.resets, buffer.values
        if self._set_truncated:
            self._mark_truncated(values, resets)
        writer.record(values, buffer.versions.copy(), resets)
        buffer.take()
        times.note("write", begin)
        return self._num_envs - len(resets)

    def _mark_truncated(self, values: Columns, resets: Indices) -> None:
        ended = np.flatnonzero(values["terminated"] | values["truncated"])
        result = StepResult(
            values["reward"], values["terminated"], values["truncated"], ended, {}, resets, NO_ENVS
        )
        self._mark_last(result, NO_ENVS)

    def _act_for(self, envs: Indices, *, at_random: bool) -> None:
        """Gives actions to environments that are ready."""
        if not envs.size:
            return
        buffer, times = self._buffer, self._times
        begin = times.clock()
        actions, extras, version = self._decide(envs, at_random)
        buffer.act(envs, {**actions, **extras}, version)
        times.note("policy", begin)
        begin = times.clock()
        if self._limit and (cut := self._is_cut[envs]).any():
            self._send_reset(envs[cut], RESET_STEPS)
            self._is_cut[envs] = False
            envs, actions = envs[~cut], {name: column[~cut] for name, column in actions.items()}
        self._pool.send(envs, actions)
        times.env += times.clock() - begin

    def _decide(self, envs: Indices, at_random: bool) -> tuple[Columns, Columns, int]:
        if at_random or self._actor is None:
            return self._random.draw_for(envs), {}, -1
        decision = self._ask(self._actor, self._buffer.observations(envs), self._refresh(), envs)
        if self._remembers:
            self._actor.keep(decision[1], envs)
        return decision

    def _receive(self) -> None:
        """Waits for results and takes them in."""
        begin = self._times.clock()
        results = self._pool.receive()
        self._times.note("env", begin, "env_step")
        envs, buffer = results.envs, self._buffer
        dropped = buffer.complete(
            envs, results.observations, results.reward, results.terminated, results.truncated
        )
        if self._limit or self._remembers:
            states = buffer.states[envs]
            self._follow_episodes(envs[states <= RESET_STEPS], envs[states == RESET_STEPS])
        if dropped:
            self._send_reset(envs[buffer.states[envs] == DROPPED], BEGINS)

    def _follow_episodes(self, envs: Indices, resets: Indices) -> None:
        """Resets the memory of the policy at resets, and cuts trajectories that have reached the limit.

        Args:
            envs: environments that took a row.
            resets: those of them whose step was a reset.
        """
        if self._remembers and self._actor is not None and resets.size:
            self._actor.reset(resets)
        if self._limit:
            self._lengths[envs] += 1
            self._lengths[resets] = 0
            long = envs[self._lengths[envs] >= self._limit]
            self._is_cut[long] = ~self._buffer.is_over[long]
            self._buffer.mark_truncated(long)
