"""The step writer of transitions, also of ready-made ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import DeadlineExceeded, SpecError, StoreFull
from headrace.replay.interface import TO_WRITE, check_replay
from headrace.replay.only_table import only_table
from headrace.tables.description.rules import PriorityFunction
from headrace.trajectories.lifecycle import MAX_PENDING, alone
from headrace.trajectories.rules.step_rules import NStepRule, writer_rule
from headrace.trajectories.writers.ready_transitions import ReadyTransitions
from headrace.trajectories.writers.step_writer import StepWriter
from headrace.views.view import View

if TYPE_CHECKING:
    from headrace.replay.interface import ReplayLike, WriterLike

_LANE = np.zeros(1, np.int64)


class TransitionWriter(StepWriter):
    """Makes one item of every transition, sampled with its n-step return.

    The learner uses `reward + discount * value(next_observation)`. Each step is the start of exactly one item, the last
    ones of an episode with shorter returns.

    Args:
        replay: see `StepWriter`.
        table: the table's name; None is the only table of the replay.
        n_step: largest number of transitions in a return.
        gamma: the discount of one step.
        priority: of every item; or a function of the rows t to t + n. None: `Table.new_priority`.
        lanes, autoreset, env, timeout: see `StepWriter`.

    >>> import headrace as hr
    >>> import numpy as np
    >>> step = {"observation": np.float32(0), "action": 0, "reward": 0.0, "terminated": False, "truncated": False}
    >>> table = hr.Table("t", sampler=hr.selectors.Fifo(), remover=hr.selectors.Fifo(), max_size=9, max_times_sampled=1)
    >>> replay = hr.Replay(hr.Signature.like(step), [table])
    >>> with hr.TransitionWriter(replay, "t", n_step=2, gamma=0.9) as writer:
    ...     writer.add_first(np.float32(0))
    ...     for t in range(3):
    ...         keys = writer.add(t, t + 1.0, False, t == 2, np.float32(t + 1))
    >>> data = replay.sample("t", 3, views=writer.views).data
    >>> data["reward"].round(2).tolist(), data["discount"].round(2).tolist(), data["next_observation"].tolist()
    ([2.8, 4.7, 3.0], [0.81, 0.81, 0.9], [2.0, 3.0, 3.0])
    >>> replay.close()
    """

    def __init__(
        self,
        replay: ReplayLike,
        table: str | None = None,
        n_step: int = 1,
        gamma: float = 0.99,
        *,
        priority: float | PriorityFunction | None = None,
        lanes: int | None = None,
        autoreset: Any = None,
        env: Any = None,
        timeout: float | None = None,
    ) -> None:
        if table is None:
            check_replay("replay", replay, TO_WRITE)
            table = only_table(type(self).__name__, replay.table_names)
        rule = NStepRule(table, n_step, gamma, priority)
        super().__init__(replay, [rule], lanes=lanes, autoreset=autoreset, env=env, timeout=timeout)
        extras = {"extras": View("extras")} if self._recorder.columns.extras else {}
        self._views = {**rule.views, **extras}

    @property
    def views(self) -> Mapping[str, View]:
        """The views for `Replay.sample`: `hr.views.transition(n_step, gamma)`, and `extras` if there are any."""
        return dict(self._views)

    @alone
    def extend(
        self,
        observation: Any,
        action: Any,
        reward: Any,
        terminated: Any,
        truncated: Any,
        next_observation: Any,
        extras: Any = None,
    ) -> list[int]:
        """Adds transitions that are ready-made, between episodes: trees of arrays `[n, ...]`, one row each.

        Row i + 1 goes on with the trajectory of row i if row i has no flag and its next observation equals the
        observation of row i + 1, bit by bit as stored. Elsewhere a trajectory ends, and its last next observation is
        kept; the last row of a call always ends one.

        Args:
            observation: as in the signature, with an axis of n in front, as all others.
            action: the action taken at each observation.
            reward: the reward of each action, `[n]`.
            terminated: bool[n], whether the episode ended there.
            truncated: bool[n], whether the episode was cut off there.
            next_observation: the observation after each action.
            extras: all of the signature's; they belong to the actions.

        Returns:
            The keys of the items: that of row i at place i.

        Raises:
            ValueError: the writer has lanes, an episode is open, or a function gave no priority; nothing is stored.
            SpecError: something does not fit, or `add_first` named an extra; nothing is stored.
            StoreFull: no page for all rows. The first `error.stored` transitions are stored, each with its next
                observation; their keys come with the next `add` or `reset`.
            DeadlineExceeded: the tables were full for `timeout` seconds; like `StoreFull`.
            Closed: the writer is closed.

        >>> import headrace as hr
        >>> import numpy as np
        >>> step = {"observation": np.float32(0), "action": 0, "reward": 0.0, "terminated": False, "truncated": False}
        >>> fifo = hr.selectors.Fifo()
        >>> with hr.Replay(hr.Signature.like(step), [hr.Table("t", sampler=fifo, remover=fifo, max_size=9)]) as replay:
        ...     with hr.TransitionWriter(replay, "t") as writer:
        ...         keys = writer.extend([0.0, 1, 7], [0, 0, 0], [1.0, 2, 3], [False] * 3, [False] * 3, [1.0, 2, 8])
        ...     len(keys), replay.statistics().store.rows
        (3, 5)
        """
        writer = self._open_writer()
        step = {
            "observation": observation, "action": action, "reward": reward, "terminated": terminated,
            "truncated": truncated,
        } | ({} if extras is None else {"extras": extras})  # fmt: skip
        self._recorder.settle()
        self._check_extend()
        if not np.size(reward):
            return []
        transitions = ReadyTransitions(self._replay.signature, step, next_observation)
        priorities = self._priorities_of(transitions)
        self._recorder.declare(self._recorder.columns.observation.names)
        left = list(self._take_keys())
        try:
            self._recorder.will_store()
            self._write(writer, transitions, priorities)
        except BaseException:
            self._keys = left + self._keys
            raise
        keys, self._keys = self._keys, left
        return keys

    def _check_extend(self) -> None:
        """Refuses `extend` on this writer, or now."""
        recorder = self._recorder
        if self._lanes is not None:
            raise ValueError(
                "extend: expected a writer without lanes; transitions that are ready-made have none"
            )
        if recorder.states.open[0]:
            raise ValueError("extend: the episode is unfinished; call reset first, or add until the end")
        if recorder.with_observation:
            named = ", ".join(recorder.with_observation)
            raise SpecError(f"extras: expected extras of actions alone, but add_first named {named}")

    def _priorities_of(self, transitions: ReadyTransitions) -> list[NDArray[np.float64]] | None:
        """Returns the priorities of the items that each row makes; None if all are the rule's number."""
        (rule,) = self.rules
        if not callable(rule.priority):
            return None
        return transitions.priorities(writer_rule(rule), rule.priority, self._replay.signature)

    def _write(
        self,
        writer: WriterLike,
        transitions: ReadyTransitions,
        priorities: list[NDArray[np.float64]] | None,
    ) -> None:
        """Stores transitions, as many at once as may wait for tables; one by one where each has its own priority."""
        stored = 0
        try:
            while stored < len(transitions):
                pending = writer.pending
                most = 1 if priorities is not None else max(1, MAX_PENDING - pending)
                run = transitions.run(stored, min(stored + most, len(transitions)))
                try:
                    if priorities is None:
                        run.store(writer)
                    else:
                        writer.give_priorities({0: priorities[stored]})
                        run.store_one(writer, transitions.following)
                except StoreFull:
                    stored += run.transitions
                    self._note_stored(writer, run.stored, run.episodes)
                    raise
                stored += run.transitions
                self._note_stored(writer, run.stored, run.episodes)
                writer.raise_refused()
                self._wait_for_tables(writer, pending)
        except (StoreFull, DeadlineExceeded) as error:
            if stored and not transitions.ends[stored - 1]:
                if priorities is not None:
                    asked = sum(map(len, priorities[:stored]))
                    writer.give_priorities({0: np.concatenate(priorities)[asked:stored]})
                writer.end_lanes(_LANE, transitions.final(stored - 1))
                self._note_stored(writer, 1, 1)
            error.stored = stored
            error.add_note(
                f"extend: {stored} of {len(transitions)} transitions were stored; do not send these again"
            )
            raise
        except BaseException:
            # Such as Ctrl-C: a later step must not go on with this trajectory.
            if not self._replay.is_closed:
                writer.drop_open_lanes()
            raise

    def _note_stored(self, writer: WriterLike, rows: int, episodes: int) -> None:
        self._counters.steps_written += rows
        self._counters.episodes += episodes
        self._note_made(list(writer.take_made()))
