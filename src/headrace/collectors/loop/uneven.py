"""One step of n environments that are stepped asynchronously: the policy acts for those that are ready.

A vector step is recorded when each environment has its row of it. Fast environments go on meanwhile: their rows are
kept for the vector steps to come.
"""

# Rules: collectors CE2, CE4, CR5, CR8, CW4

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from headrace.collectors.loop.actor import Actor
from headrace.collectors.loop.lane_buffer import BEGINS, DROPPED, RESET_STEPS, LaneBuffer
from headrace.collectors.loop.recording import RANDOM_VERSION, Columns, RecordingStepper
from headrace.collectors.loop.times import LoopTimes
from headrace.envs.protocol import NO_ENVS, AsyncStepper, Indices, Results, StepResult, VectorStepper
from headrace.leases.writing.page_steps import PageSteps
from headrace.spec import ArraySpec

# Memory of the rows that fast environments may be ahead.
_MOST_BYTES = 1 << 28
# Results that are of no row when environments are reset: one that is dropped, and the first observation. While the
# slowest environment waits for them, others may have to act, because a pool gives `batch_size` results at a time.
_RESULTS_OF_RESETS = 2
# Steps of the shortest rollouts whose rows are acted for in them or in the rollout before.
SHORTEST_BOUNDED = _RESULTS_OF_RESETS + 1


class UnevenStepper(RecordingStepper):
    """A `RecordingStepper` over environments of which some are ready at a time.

    A result comes only while at least `batch_size` environments step. Beyond these, an environment is given an action
    only if it is less than a rollout ahead of the slowest one. Each reset takes a row, that of the limit, too.

    Args:
        stepper: the environments.
        actor, max_frames_per_traj, set_truncated, refresh, times: see `RecordingStepper`.
        steps: of a rollout.
    """

    acts_ahead = True

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
        if set_truncated and actor is not None and "truncated" in actor.views_read:
            raise ValueError(
                "set_truncated: expected False with views of truncated that are fed to the policy, for an EnvPool "
                "whose batch_size is below num_envs: environments that are ahead act before a step is known to be the "
                "last of its rollout"
            )
        self._pool = stepper
        observed, num_envs = stepper.observation_signature, stepper.num_envs
        depth = max(1, min(steps - _RESULTS_OF_RESETS, _MOST_BYTES // (num_envs * max(1, observed.nbytes))))
        self._buffer = LaneBuffer(observed.columns, num_envs, depth)
        # Environments whose episode is over at the limit, which they do not know.
        self._is_cut = np.zeros(num_envs, np.bool_)
        # Environments for which `probe` asked the policy, and its decision; it holds if the version is the same then.
        self._begun: tuple[Indices, tuple[Columns, Columns, int]] | None = None

    # ---- resets ----------------------------------------------------------------------------------------------------

    def reset(self, row: Columns, seeds: Sequence[int] | None = None, envs: Indices | None = None) -> None:  # noqa: ARG002 - see below
        """Begins a reset of environments (None: all); their part of `row` is written before their next step.

        Rows that these environments are ahead are dropped.
        """
        if seeds is not None:
            self._random.seed(seeds)
        self._begun = None
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
        while not (envs := self._choose()).size:
            self._take_in(self._pool.exchange(NO_ENVS, {}))
        self._begun = envs, self._ask_for(self._actor, envs, self._refresh())
        return self._actor.extras

    def step(self, writer: PageSteps, at_random: bool) -> None:
        """Records one vector step; the environments step until each has its row of it."""
        buffer, times = self._buffer, self._times
        while not buffer.is_ready:
            self._exchange(at_random=at_random)
        begin = times.clock()
        buffer.show_new(writer.row)
        following = buffer.following
        for name, column in writer.next_row.items():
            column[...] = following[name]
        resets, values = buffer.resets, buffer.values
        if self._set_truncated:
            self._mark_truncated(values, resets)
        writer.record(values, buffer.versions, resets)
        buffer.take()
        self.taken += self._num_envs - len(resets)
        times.note("write", begin)

    def _mark_truncated(self, values: Columns, resets: Indices) -> None:
        ended = np.flatnonzero(values["terminated"] | values["truncated"])
        result = StepResult(
            values["reward"], values["terminated"], values["truncated"], ended, {}, resets, NO_ENVS
        )
        self._mark_last(result, NO_ENVS)

    def _choose(self) -> Indices:
        """Returns the environments that act next."""
        return self._buffer.choose(self._pool.is_busy, self._pool.batch_size)

    def _exchange(self, *, at_random: bool) -> None:
        """Gives actions to the environments that are ready, waits for results, and takes them in."""
        clock, envs = self._times.clock, self._choose()
        begin = clock()
        actions: Columns = {}
        if envs.size:
            actions, extras, version = self._decide(envs, at_random)
            self._buffer.act(envs, {**actions, **extras} if extras else actions, version)
        acted = clock()
        if self._limit:
            envs, actions = self._reset_cut(envs, actions)
        results = self._pool.exchange(envs, actions)
        self._times.note_exchange(begin, acted, clock())
        self._take_in(results)

    def _decide(self, envs: Indices, at_random: bool) -> tuple[Columns, Columns, int]:
        if at_random or self._actor is None:
            return self._draw(envs), {}, RANDOM_VERSION
        version = self._refresh()
        begun, self._begun = self._begun, None
        if begun is None or begun[1][2] != version or not np.array_equal(begun[0], envs):
            begun = envs, self._ask_for(self._actor, envs, version)
        decision = begun[1]
        if self._remembers:
            self._actor.keep({**decision[0], **decision[1]}, envs)
        return decision

    def _draw(self, envs: Indices) -> Columns:
        actions = self._random.draw_for(envs)
        if self._remembers and self._actor is not None:
            self._actor.see(self._buffer.observations(envs), RANDOM_VERSION, envs)
            self._actor.keep(actions, envs)
        return actions

    def _ask_for(self, actor: Actor, envs: Indices, version: int) -> tuple[Columns, Columns, int]:
        return self._ask(actor, self._buffer.observations(envs), version, envs)

    def _reset_cut(self, envs: Indices, actions: Columns) -> tuple[Indices, Columns]:
        """Resets environments whose episode is over at the limit; returns the others, and their actions."""
        cut = self._is_cut[envs]
        if not cut.any():
            return envs, actions
        self._is_cut[envs] = False
        self._buffer.expect(envs[cut], RESET_STEPS)
        self._pool.send_reset(envs[cut])
        return envs[~cut], {name: column[~cut] for name, column in actions.items()}

    def _take_in(self, results: Results) -> None:
        """Takes in results of environments."""
        envs, buffer = results.envs, self._buffer
        dropped = buffer.complete(
            envs, results.observations, results.reward, results.terminated, results.truncated
        )
        if self._limit or self._remembers:
            self._follow(results, buffer.states[envs])
        if dropped:
            self._send_reset(envs[buffer.states[envs] == DROPPED], BEGINS)

    def _follow(self, results: Results, states: NDArray[np.uint8]) -> None:
        """Keeps what the policy remembers, and cuts trajectories that have reached the limit.

        Args:
            results: of environments.
            states: uint8[k], the kind of each result.
        """
        is_row = states <= RESET_STEPS
        envs, resets = results.envs[is_row], results.envs[states == RESET_STEPS]
        if self._remembers and self._actor is not None and envs.size:
            outcomes = {
                name: getattr(results, name)[is_row] for name in ("reward", "terminated", "truncated")
            }
            self._actor.finish(outcomes, envs, resets)
        if self._limit:
            self._lengths[envs] += 1
            self._lengths[resets] = 0
            long = envs[self._lengths[envs] >= self._limit]
            self._is_cut[long] = ~self._buffer.is_over[long]
            self._buffer.mark_truncated(long)
