"""Writer for environments that are stepped one call at a time: one, or many lanes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from headrace.checks import check_count
from headrace.trajectories.episode import Episode
from headrace.trajectories.lifecycle import MAX_PENDING, NEVER_WAITS, Recorder, alone
from headrace.trajectories.rules.step_rules import StepRule, advice, checked_step_rules, writer_rule
from headrace.trajectories.writers.episode_limits import EpisodeLimits
from headrace.trajectories.writers.episode_steps import EpisodeSteps
from headrace.trajectories.writers.lane_recorder import WAS_INTERRUPTED, LaneRecorder
from headrace.trajectories.writers.lane_states import autoreset_mode, checked_mask
from headrace.trajectories.writers.returned_steps import following, lanes_of_env

if TYPE_CHECKING:
    from headrace.replay.interface import ReplayLike


class StepWriter(Recorder):
    """Turns steps of an environment, or of `lanes` environments side by side, into items of any number of tables.

    `add_first` opens an episode with its first observation; each `add` brings an action and what followed. A step is
    stored once for all tables. Leaving the context closes the writer; an unfinished episode is then written as if it
    were cut there.

    Args:
        replay: a `Replay`, or an object with its interface (`ReplayLike`). Its signature is a mapping with
            `observation`, `action`, `reward`, `terminated`, `truncated` and, if they are used, `extras`.
        rules: of the items: `ItemRule` (windows), `NStepRule` (transitions), `EpisodeRule` (whole episodes),
            `PatternRule` (columns at offsets, under conditions).
        lanes: number of environments side by side: every leaf then has a leading axis of this size. None: one
            environment, without such an axis.
        autoreset: how the environments go on when an episode ends: "next_step", "same_step", "disabled", or gymnasium's
            `AutoresetMode`; needed with lanes, None without.
        env: an environment or vector environment of gymnasium, whose lanes and mode the writer takes. Its `add` then
            takes steps as the environment returns them, and `add_first` is not needed: `add(observation, action,
            reward, terminated, truncated, next_observation, info=None, extras=None)`. `hr.envs.adapt` says the mode
            of a vector environment that does not declare it.
        timeout: seconds that a call may wait when 1000 items of this writer wait for full tables; None waits for ever.

    Raises:
        SpecError: a column of the signature is missing, or is one that no call fills; a pattern reads an unknown one.
        KeyError: no such table.
        ValueError: `autoreset` is missing or unknown; a number out of range.
        TypeError: an argument of another kind.

    >>> import headrace as hr
    >>> step = {"observation": np.float32(0), "action": 0, "reward": 0.0, "terminated": False, "truncated": False}
    >>> fifo = hr.selectors.Fifo()
    >>> tables = [hr.Table(name, sampler=fifo, remover=fifo, max_size=100) for name in ("transitions", "episodes")]
    >>> replay = hr.Replay(hr.Signature.like(step), tables)
    >>> rules = [hr.NStepRule("transitions", n_step=2), hr.EpisodeRule("episodes", max_length=100)]
    >>> with hr.StepWriter(replay, rules) as writer:
    ...     writer.add_first(np.float32(0))
    ...     for t in range(3):
    ...         keys = writer.add(t, 1.0, t == 2, False, np.float32(t + 1))
    >>> len(replay.table("transitions")), replay.sample("episodes", 1).data["observation"].tolist()
    (3, [[0.0, 1.0, 2.0, 3.0]])
    >>> replay.close()
    """

    def __new__(cls, *_args: Any, env: Any = None, **_named: Any) -> Self:
        """Returns a writer whose `add` takes steps as `env` returns them, if there is one."""
        return object.__new__(cls if env is None else following(cls))

    def __init__(
        self,
        replay: ReplayLike,
        rules: Sequence[StepRule],
        *,
        lanes: int | None = None,
        autoreset: Any = None,
        env: Any = None,
        timeout: float | None = None,
    ) -> None:
        super().__init__("replay", replay, timeout)
        self.rules = checked_step_rules(rules)
        lanes, autoreset = lanes_of_env(env, lanes, autoreset)
        self._lanes = None if lanes is None else check_count("lanes", lanes, 1)
        mode = autoreset_mode(autoreset, self._lanes)
        written = [writer_rule(rule) for rule in self.rules]
        self._recorder = LaneRecorder(
            replay.signature, self.rules, written, self._lanes, mode, self._counters
        )
        self._limits = EpisodeLimits(self.rules, self._recorder.states, self._lanes)
        self._writer = replay.row_writer(self._lanes or 1, items=written, max_pending=NEVER_WAITS)
        self._recorder.write_to(self._writer)
        self._writer.record_items()

    # ---- calls -----------------------------------------------------------------------------------------------------

    @alone
    def add_first(self, observation: Any, extras: Any = None, mask: Any = None) -> None:
        """Opens an episode with its first observation.

        Args:
            observation: as in the signature; with lanes every leaf is `[lanes, ...]`.
            extras: those that come with observations; the first call decides which these are.
            mask: bool[lanes], the lanes that are opened; the rows of the others are ignored. None is all.

        Raises:
            ValueError: an episode is unfinished, or a mask is given without lanes; nothing changed.
            SpecError: something does not fit; nothing changed.
            Closed: the writer is closed.
        """
        self._open_writer()
        self._recorder.settle()
        self._recorder.open(observation, extras, checked_mask(mask, self._lanes))

    def add(
        self,
        action: Any,
        reward: Any,
        terminated: Any,
        truncated: Any,
        next_observation: Any,
        extras: Any = None,
        final_observation: Any = None,
    ) -> Sequence[int]:
        """Takes an action and its results. With lanes every leaf has them as its first axis.

        Args:
            action: of the agent.
            reward: of the action.
            terminated, truncated: whether the episode ended, and was cut off; both may be set.
            next_observation: after the action. Where a lane is reset in the same step, the first of its next episode.
            extras: all of them; those that `add_first` names belong to `next_observation`.
            final_observation: with autoreset="same_step" the last observations of the lanes that ended.

        Returns:
            The keys of the new items, in order; those of a call that raised DeadlineExceeded come with the next one. A
            list; over a client a sequence that is equal to it, and a look at it waits for the server.

        Raises:
            ValueError: a lane has no open episode, is to be reset, has no final observation, or is too long for an
                `EpisodeRule`; a function gave no priority, or a condition no bool. Nothing changed.
            SpecError: something does not fit; nothing changed.
            StoreFull: no page for the step, and it was not taken; send it again when items have left. Or no page for
                its items: then it says that the step was stored.
            DeadlineExceeded: the tables were full for `timeout` seconds; the step was taken, do not send it again.
            Closed: the writer is closed.
        """
        # Does the work of `alone` without its cost.
        if self._in_use:
            raise self._busy()
        self._in_use = True
        recorder, limits = self._recorder, self._limits
        states = recorder.states
        calls = states.calls
        try:
            writer = self._writer
            if writer is None:
                raise self._closed()
            if recorder.is_storing and recorder.settle():
                raise ValueError(WAS_INTERRUPTED)
            following = recorder.read((reward, terminated, truncated), action, next_observation, extras)
            if states.changed:
                limits.watch()
            warning = ""
            if calls >= limits.next_call:
                warning = limits.check()
                states.changed = True
            pending = writer.pending_from(MAX_PENDING)
            recorder.take(following, final_observation)
            return self._finish(writer, pending, warning)
        except KeyboardInterrupt as error:
            if recorder.has_stored(calls):
                error.add_note("The step of this call of add was stored: do not send it again.")
            raise
        finally:
            self._in_use = False

    # ---- whole episodes and resets ---------------------------------------------------------------------------------

    def add_episode(self, episode: Episode) -> list[int]:
        """Adds a recorded episode: all of its steps, and `reset` if it has no end.

        Returns:
            The keys of the new items.

        Raises:
            ValueError: an episode is unfinished, this one is too long for an `EpisodeRule`, or the writer has lanes;
                nothing changed.
            SpecError: something does not fit; nothing changed.
            StoreFull, DeadlineExceeded: as `add`, in the middle of the episode.
        """
        steps = self._steps_of(episode)
        self.add_first(*steps.first)
        made = [StepWriter.add(self, *step) for step in steps]
        if not (episode.terminated or episode.truncated):
            made.append(self.reset())
        return [key for keys in made for key in keys]

    @alone
    def _steps_of(self, episode: Episode) -> EpisodeSteps:
        """Checks an episode, and returns the calls that add it."""
        self._open_writer()
        if self._lanes is not None:
            raise ValueError(
                "add_episode: expected a writer without lanes: each lane's environment adds by itself"
            )
        recorder = self._recorder
        recorder.settle()
        recorder.states.lanes_to_open(None)
        return EpisodeSteps(
            self._replay.signature,
            recorder.columns,
            episode,
            recorder.with_observation,
            self._limits.longest,
        )

    @alone
    def reset(self, write_cached_steps: bool = True, mask: Any = None) -> Sequence[int]:
        """Ends unfinished episodes here. Each lane then needs `add_first`.

        Args:
            write_cached_steps: True ends them as cut: the last observation is stored as the final row, no flag is set,
                and the remaining items are made. False drops rows that no item needs.
            mask: bool[lanes], the lanes; None is all.

        Returns:
            The keys of the new items; see `add`.

        Raises:
            StoreFull: no page for the final rows; nothing changed.
            DeadlineExceeded: the tables were full for `timeout` seconds; the episodes are over all the same.
            Closed: the writer is closed.
        """
        writer = self._open_writer()
        checked = checked_mask(mask, self._lanes)
        lanes = np.arange(self._lanes or 1) if checked is None else np.flatnonzero(checked)
        self._check_replay()
        pending, warning = writer.pending_from(MAX_PENDING), ""
        self._recorder.settle()
        if write_cached_steps:
            warning = self._end(lanes)
        else:
            self._recorder.drop(lanes)
        return self._finish(writer, pending, warning, stacklevel=4)

    def _end(self, lanes: NDArray[np.int64]) -> str:
        """Ends the episodes and streams of some lanes as cut; returns the text of a warning."""
        dropped = self._recorder.cut(lanes)
        return (
            f"{dropped} steps are in no item and were dropped. To keep them: {advice(self.rules)}"
            if dropped
            else ""
        )

    # ---- the object's life -----------------------------------------------------------------------------------------

    def _end_all(self) -> str:
        self._recorder.settle()
        return self._end(np.arange(self._lanes or 1))

    def _num_cached(self) -> int:
        return self._recorder.states.cached

    def _unwritten(self) -> str:
        cached = self._num_cached()
        return f"with {cached} steps of unfinished episodes, which were" if cached else ""

    def __repr__(self) -> str:
        rules = ", ".join(map(repr, self.rules))
        state = "closed" if self._writer is None else f"open, {self._recorder.states.cached} steps cached"
        lanes = "" if self._lanes is None else f", {self._lanes} lanes, {self._recorder.states.mode}"
        return f"<{type(self).__name__} of {rules}{lanes}, {state}>"
