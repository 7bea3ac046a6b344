"""Steps in, items out: the writer for environments that are stepped one call at a time, one copy or many."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from headrace.checks import check_count
from headrace.errors import Closed, DeadlineExceeded
from headrace.replay.chosen import Chosen
from headrace.replay.rules import ItemRule
from headrace.statistics import StepStatistics
from headrace.trajectories.dropped_rows import DroppedRows
from headrace.trajectories.episode import Episode
from headrace.trajectories.episode_steps import EpisodeSteps
from headrace.trajectories.final_observations import read_final_observations
from headrace.trajectories.held_columns import HeldColumns
from headrace.trajectories.item_priorities import ItemPriorities
from headrace.trajectories.lane_states import SAME_STEP, LaneStates, autoreset_mode, checked_mask
from headrace.trajectories.pattern_rule import PatternRule
from headrace.trajectories.patterns import Patterns
from headrace.trajectories.step_columns import Columns, StepColumns
from headrace.trajectories.step_rules import EpisodeRule, StepRule, writer_rule

if TYPE_CHECKING:
    from headrace.replay.replay import Replay
    from headrace.replay.writer import Writer
    from headrace.spec import Signature

# Items of one step writer that may wait for the rate limiters of its tables, before a call waits too (replay I4).
MAX_PENDING = 1000
# A writer of rows that never waits by itself: a step writer waits when it has taken the step (trajectories O10).
_NEVER_WAITS = 1 << 62
_NO_LANES = np.zeros(0, np.int64)
_NOTHING_CHOSEN = Chosen({}, {})


class StepWriter:
    """Turns steps of an environment, or of `lanes` copies of one, into items of any number of tables.

    `add_first` opens an episode with its first observation; each `add` brings an action and what followed. A step is
    stored once for all tables. Leaving the context closes the writer; an unfinished episode is then written as if it
    were cut there.

    Args:
        replay: a `Replay`, or what has its interface. Its signature is a mapping with `observation`, `action`,
            `reward`, `terminated`, `truncated` and, if they are used, `extras`.
        rules: what becomes items: `ItemRule` (windows), `NStepRule` (transitions), `EpisodeRule` (whole episodes),
            `PatternRule` (columns at offsets, under conditions).
        lanes: copies side by side: every leaf then has a leading axis of this size. None: one, without such an axis.
        autoreset: what the copies do when an episode ends: "next_step", "same_step", "disabled", or gymnasium's
            `AutoresetMode`; needed with lanes, None without.
        timeout: seconds that a call may wait when 1000 items of this writer wait for full tables; None waits for ever.

    Raises:
        SpecError: a column of the signature is missing, or is one that nobody gives; a pattern reads an unknown one.
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

    def __init__(
        self,
        replay: Replay,
        rules: Sequence[StepRule],
        *,
        lanes: int | None = None,
        autoreset: Any = None,
        timeout: float | None = None,
    ) -> None:
        self._writer: Writer | None = None
        self.rules = _checked_rules(rules)
        self._lanes = None if lanes is None else check_count("lanes", lanes, 1)
        mode = autoreset_mode(autoreset, self._lanes)
        self._timeout = _checked_timeout(timeout)
        self._columns = StepColumns(replay.signature, self._lanes)
        self._replay = replay
        count = self._lanes or 1
        self._states = LaneStates(count, mode)
        made_of = [writer_rule(rule) for rule in self.rules]
        self._dropped = DroppedRows(made_of, count)
        functions = {
            number: rule.priority for number, rule in enumerate(self.rules) if callable(rule.priority)
        }
        self._priorities = ItemPriorities(replay.signature, made_of, functions, count) if functions else None
        self._patterns = self._new_patterns(replay.signature)
        limits = [rule for rule in self.rules if isinstance(rule, EpisodeRule) and rule.overflow != "split"]
        self._limits = sorted(limits, key=lambda rule: rule.max_length)
        self._next_limit = _NEVER_WAITS
        self._held = HeldColumns(self._columns.specs, self._lanes)
        self._with_observation: tuple[str, ...] | None = None
        self._in_use = threading.Lock()
        self._keys: list[int] = []
        self._steps_written = self._items_written = self._steps_dropped = self._episodes = 0
        self._writer = replay.writer(count, items=made_of, max_pending=_NEVER_WAITS)
        self._writer.record_items()

    # ---- calls -----------------------------------------------------------------------------------------------------

    def add_first(self, observation: Any, extras: Any = None, mask: Any = None) -> None:
        """Open an episode with its first observation.

        Args:
            observation: as in the signature; with lanes every leaf is `[lanes, ...]`.
            extras: those that come with observations; which these are is settled by the first call.
            mask: bool[lanes], the lanes that are opened; only their rows are looked at. None is all.

        Raises:
            ValueError: an episode is unfinished; a mask where there is none; nothing changed.
            SpecError: something does not fit; nothing changed.
            Closed: the writer is closed.
        """
        with self._alone():
            self._open_writer()
            columns = self._columns
            chosen = checked_mask(mask, self._lanes)
            lanes = self._states.lanes_to_open(chosen)
            rows = None if chosen is None else lanes
            if rows is None:
                values = columns.observation.read(observation)
            else:
                values = columns.observation.read_rows(observation, len(self._states.open), rows)
            found = dict(zip(columns.observation.names, values, strict=True))
            found |= columns.read_extras(extras, self._with_observation, rows)
            self._settle(found)
            self._held.put(found, rows)
            self._states.start(lanes)
            self._watch_limits()

    def add(
        self,
        action: Any,
        reward: Any,
        terminated: Any,
        truncated: Any,
        next_observation: Any,
        extras: Any = None,
        final_observation: Any = None,
    ) -> list[int]:
        """Take what an action did. With lanes every leaf has them as its first axis.

        Args:
            action: that was taken.
            reward: that followed.
            terminated, truncated: whether the episode ended, and was cut off; both may be set.
            next_observation: that followed. Where a lane is reset in the same step, the first of its next episode.
            extras: all of them; those that `add_first` names belong to `next_observation`.
            final_observation: with autoreset="same_step" the last observations of the lanes that ended.

        Returns:
            The keys of the items that this made, in order; those of a call that raised DeadlineExceeded come with the
            next one.

        Raises:
            ValueError: a lane has no open episode, is to be reset, has no final observation, or is too long for an
                `EpisodeRule`; a function gave no priority, or a condition no bool. Nothing changed.
            SpecError: something does not fit; nothing changed.
            StoreFull: no room for the step, and it was not taken; send it again when items have left.
            DeadlineExceeded: the tables were full for `timeout` seconds; the step was taken, do not send it again.
            Closed: the writer is closed.
        """
        # As `_alone`, without its cost.
        if not self._in_use.acquire(blocking=False):
            raise _used_twice()
        try:
            writer = self._writer
            if writer is None:
                raise _closed()
            states = self._states
            if not states.all_open:
                states.check_add()
            columns = self._columns
            flags = columns.read_scalars((reward, terminated, truncated))
            following = dict(zip(columns.observation.names, columns.observation.read(next_observation)))  # noqa: B905
            row = {**self._held.row, **dict(zip(columns.action.names, columns.action.read(action)))}  # noqa: B905
            row["reward"], row["terminated"], row["truncated"] = flags
            if extras is not None or columns.has_extras:
                for name, value in columns.read_extras(extras, columns.extras).items():
                    (following if name in self._held.row else row)[name] = value
            at_limit = states.calls >= self._next_limit
            warning = self._check_limits() if at_limit else ""
            pending = writer.pending
            if (
                states.all_open
                and self._priorities is None
                and final_observation is None
                and not columns.any_set(flags[1], flags[2])
            ):
                chosen = None if self._patterns is None else self._choose(writer, row)
                # A writer of one lane has no axis of lanes.
                writer.append({name: value[0] for name, value in row.items()} if self._lanes == 1 else row)
                if chosen is not None:
                    self._dropped.chose(chosen, states.calls - states.begin)
                states.calls += 1
                self._steps_written += len(states.open)
            else:
                self._take_seam(writer, row, following, final_observation)
                at_limit = True
            self._held.turn(following)
            if at_limit:
                self._watch_limits()
            return self._done(writer, pending, warning)
        finally:
            self._in_use.release()

    def _take_seam(self, writer: Writer, row: Columns, following: Columns, final_observation: Any) -> None:
        """A step in which some lanes end, are reset, or whose items' priorities are asked for."""
        states, columns = self._states, self._columns
        step = columns.with_lanes(row)
        flags: NDArray[np.bool_] = step["terminated"] | step["truncated"]
        states.check_resets(flags)
        ended, idle = np.flatnonzero(flags), states.resetting.copy()
        finals = self._finals(ended, columns.with_lanes(following), final_observation)
        chosen, index = _NOTHING_CHOSEN, states.calls - states.begin
        if self._patterns is not None:
            chosen = self._patterns.choose(index, step, np.flatnonzero(~idle), ended, finals)
            writer.choose_windows(chosen)
        if self._priorities is not None:
            taken = {name: np.array(value) for name, value in step.items()}
            self._give_priorities(writer, taken, np.flatnonzero(~idle), ended, finals, chosen)
        writer.append_seam(step, idle, ended, finals)
        self._dropped.chose(chosen, index)
        self._steps_written += len(idle) - int(np.count_nonzero(idle)) + len(ended)
        for lane, rows in zip(ended.tolist(), states.rows(ended).tolist(), strict=True):
            self._steps_dropped += self._dropped.end(lane, rows + 1)
        self._episodes += len(ended)
        states.stepped(ended)
        if self._priorities is not None:
            self._priorities.took_step()

    def _finals(
        self, ended: NDArray[np.int64], following: Columns, final_observation: Any
    ) -> dict[str, NDArray[Any]]:
        """What the final rows of these lanes hold beside zeros."""
        states, columns = self._states, self._columns
        if states.mode != SAME_STEP:
            if final_observation is not None:
                raise ValueError(
                    f"final_observation: expected None where lanes are not reset in the same step (the mode is "
                    f"{states.mode!r}): next_observation is the last one"
                )
            return {name: value[ended] for name, value in following.items()}
        if not len(ended):
            return {}
        names = columns.observation.names
        last = read_final_observations(columns.observation, final_observation, len(states.open), ended)
        found: dict[str, NDArray[Any]] = dict(zip(names, last, strict=True))
        # Extras that came with the first observation of the next episode belong to it (trajectories V7).
        return found | {name: columns.zeros(name, len(ended)) for name in self._held.row if name not in found}

    def _give_priorities(
        self,
        writer: Writer,
        step: Mapping[str, NDArray[Any]],
        lanes: NDArray[np.int64],
        ended: NDArray[np.int64],
        finals: Mapping[str, NDArray[Any]],
        chosen: Chosen,
    ) -> None:
        assert self._priorities is not None
        columns = self._columns
        whole = {
            name: finals[name] if name in finals else columns.zeros(name, len(ended))
            for name in columns.specs
        }
        writer.give_priorities(self._priorities.of_step(step, lanes.tolist(), ended.tolist(), whole, chosen))

    def _new_patterns(self, signature: Signature) -> Patterns | None:
        rules = {number: rule for number, rule in enumerate(self.rules) if isinstance(rule, PatternRule)}
        if not rules:
            return None
        columns = self._columns
        return Patterns(signature, rules, self._lanes, (*columns.observation.names, *columns.extras))

    def _choose(self, writer: Writer, row: Columns) -> Chosen:
        """The items of patterns that a step makes in which no lane ends or is reset."""
        assert self._patterns is not None
        states, reads = self._states, self._patterns.reads
        step = self._columns.with_lanes({name: row[name] for name in reads})
        every = np.arange(len(states.open))
        chosen = self._patterns.choose(states.calls - states.begin, step, every, _NO_LANES, {})
        writer.choose_windows(chosen)
        return chosen

    def _settle(self, found: Columns) -> None:
        """The first call says which columns every row has, final rows too."""
        if self._with_observation is None:
            if self._patterns is not None:
                self._patterns.check_ends(found)
            self._replay.note_given(found)
            self._with_observation = tuple(name for name in found if name in self._columns.extras)

    # ---- limits of episodes ----------------------------------------------------------------------------------------

    def _check_limits(self) -> str:
        """Refuse a step that makes an episode too long for an `EpisodeRule`; returns what there is to warn of."""
        states, warning = self._states, ""
        lanes = np.flatnonzero(states.open)
        rows = states.rows(lanes)
        for rule in self._limits:
            over = lanes[rows == rule.max_length].tolist()
            if not over:
                continue
            which = "the episode" if self._lanes is None else f"the episodes of lanes {over}"
            if rule.overflow == "raise":
                raise ValueError(
                    f"add: {which} would have more than max_length={rule.max_length} transitions (table "
                    f"{rule.table!r}). Nothing was taken; reset() writes what there is. Or set a larger max_length, or "
                    "overflow='split' or 'drop'"
                )
            warning = (
                f"{which} is longer than max_length={rule.max_length} and dropped (table {rule.table!r}); "
                "overflow='split' would keep it"
            )
        return warning

    def _watch_limits(self) -> None:
        """Note before which call an episode may have become too long."""
        states = self._states
        begin = states.begin[states.open]
        calls = [
            int(due.min())
            for rule in self._limits
            if len(due := (begin + rule.max_length)[begin + rule.max_length >= states.calls])
        ]
        self._next_limit = min(calls, default=_NEVER_WAITS)

    # ---- whole episodes and resets ---------------------------------------------------------------------------------

    def add_episode(self, episode: Episode) -> list[int]:
        """Add a recorded episode: all of its steps, and `reset` if it has no end.

        Returns:
            The keys of the items that this made.

        Raises:
            ValueError: an episode is unfinished, this one is too long for an `EpisodeRule`, or the writer has lanes;
                nothing changed.
            SpecError: something does not fit; nothing changed.
            StoreFull, DeadlineExceeded: as `add`, in the middle of the episode.
        """
        with self._alone():
            self._open_writer()
            if self._lanes is not None:
                raise ValueError(
                    "add_episode: expected a writer without lanes: each lane's environment adds by itself"
                )
            self._states.lanes_to_open(None)
            longest = min(
                (rule.max_length for rule in self._limits if rule.overflow == "raise"), default=None
            )
            steps = EpisodeSteps(
                self._replay.signature, self._columns, episode, self._with_observation, longest
            )
        self.add_first(*steps.first)
        keys = [key for step in steps for key in self.add(*step)]
        return keys if episode.terminated or episode.truncated else keys + self.reset()

    def reset(self, write_cached_steps: bool = True, mask: Any = None) -> list[int]:
        """End unfinished episodes here. Each lane then needs `add_first`.

        Args:
            write_cached_steps: True ends them as cut: the last observation is stored as the final row, no flag is set,
                and the remaining items are made. False drops what no item needs.
            mask: bool[lanes], the lanes; None is all.

        Returns:
            The keys of the items that this made.

        Raises:
            StoreFull: no room for the final rows; nothing changed.
            DeadlineExceeded: the tables were full for `timeout` seconds; the episodes are over all the same.
            Closed: the writer is closed.
        """
        with self._alone():
            writer = self._open_writer()
            chosen = checked_mask(mask, self._lanes)
            if self._replay.is_closed:
                raise Closed("the replay is closed")
            pending = writer.pending
            every = np.arange(len(self._states.open))
            warning = self._end(writer, every if chosen is None else every[chosen], bool(write_cached_steps))
            return self._done(writer, pending, warning)

    def _end(self, writer: Writer, lanes: NDArray[np.int64], writes: bool) -> str:
        """End the episodes of these lanes and their streams; returns what there is to warn of."""
        states = self._states
        unfinished = lanes[states.open[lanes]]
        unfinished = unfinished[states.rows(unfinished) > 0]
        rows = states.rows(unfinished).tolist()
        if len(unfinished) and writes:
            held = self._columns.with_lanes(self._held.row)
            finals = {name: value[unfinished] for name, value in held.items()}
            chosen, index = _NOTHING_CHOSEN, states.calls - states.begin - 1
            if self._patterns is not None:
                chosen = self._patterns.choose(index, {}, _NO_LANES, unfinished, finals)
                writer.choose_windows(chosen)
            if self._priorities is not None:
                self._give_priorities(writer, {}, _NO_LANES, unfinished, finals, chosen)
            writer.end_lanes(unfinished, finals)
            self._dropped.chose(chosen, index)
            self._steps_written += len(unfinished)
        elif len(unfinished):
            writer.drop_open_lanes(unfinished)
        writer.end_streams(lanes)
        if self._priorities is not None:
            self._priorities.forget(lanes.tolist())
        count = self._dropped.end if writes else self._dropped.abandon
        dropped = sum(count(lane, each) for lane, each in zip(unfinished.tolist(), rows, strict=True))
        dropped += sum(self._dropped.end_stream(lane) for lane in lanes.tolist())
        self._steps_dropped += dropped
        self._episodes += len(unfinished)
        states.close(lanes)
        self._watch_limits()
        if not dropped or not writes:
            return ""
        return f"{dropped} steps are in no item and were dropped. To keep them: {self._advice()}"

    def _advice(self) -> str:
        """Which settings would keep every step."""
        advice = []
        for rule in self.rules:
            if isinstance(rule, EpisodeRule):
                advice.append(f"overflow='split' for table {rule.table!r}")
            elif isinstance(rule, PatternRule):
                advice.append(f"a pattern with fewer conditions for table {rule.table!r}")
            elif isinstance(rule, ItemRule):
                shorter = f" and a period of at most {rule.length}" if rule.stride > rule.length else ""
                advice.append(f"end=EndOfEpisode.PAD or TRUNCATE{shorter} for table {rule.table!r}")
        return "; or ".join(advice)

    # ---- waiting and closing ---------------------------------------------------------------------------------------

    def flush(self, timeout: float | None = None) -> None:
        """Return when every item made so far is in its tables.

        Args:
            timeout: in seconds; None waits for ever.

        Raises:
            DeadlineExceeded: tells how many items wait for which table; they stay pending.
            Closed: the writer or the replay is closed.
        """
        with self._alone():
            self._open_writer().flush(timeout)

    def close(self) -> None:
        """End unfinished episodes as `reset` does; return when every item is in its tables. A second call does nothing.

        Raises:
            DeadlineExceeded: the tables were full for `timeout` seconds; the items stay pending, and the writer stays
                open so that it can be closed again.
            Closed: the replay was closed before all items were in.
        """
        with self._alone():
            writer = self._writer
            if writer is None:
                return
            try:
                if self._replay.is_closed:
                    raise Closed(
                        f"the replay is closed; {self._states.cached} steps of unfinished episodes are lost"
                    )
                warning = self._end(writer, np.arange(len(self._states.open)), True)
                try:
                    writer.close(self._timeout)
                finally:
                    self._count_made(writer)
                    _warn(warning, 3)
            except Closed:
                self._writer = None
                raise
            self._writer = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
            return
        with self._alone():
            writer = self._writer
            if writer is None:
                return
            self._writer = None
            warning = ""
            if not self._replay.is_closed:
                warning = self._end(writer, np.arange(len(self._states.open)), True)
                self._count_made(writer)
            # Waits for nothing, and tells what is pending (replay I6).
            writer.__exit__(kind, error, trace)
            _warn(warning, 3)

    def __del__(self) -> None:
        # A writer that was never built has no steps.
        if getattr(self, "_writer", None) is not None and (cached := self._states.cached):
            warnings.warn(
                f"{self!r} was garbage-collected with {cached} steps of unfinished episodes, which were not written as "
                "they would have been by close()",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )

    # ---- counting --------------------------------------------------------------------------------------------------

    def statistics(self) -> StepStatistics:
        """What happened so far, and how many steps the unfinished episodes have."""
        cached = 0 if self._writer is None else self._states.cached
        return StepStatistics(
            self._steps_written, self._items_written, self._steps_dropped, self._episodes, cached
        )

    def __repr__(self) -> str:
        rules = ", ".join(map(repr, self.rules))
        state = "closed" if self._writer is None else f"open, {self._states.cached} steps cached"
        lanes = "" if self._lanes is None else f", {self._lanes} lanes, {self._states.mode}"
        return f"<{type(self).__name__} of {rules}{lanes}, {state}>"

    # ---- parts -----------------------------------------------------------------------------------------------------

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Refuse a call while another thread is in one (trajectories U2)."""
        if not self._in_use.acquire(blocking=False):
            raise _used_twice()
        try:
            yield
        finally:
            self._in_use.release()

    def _open_writer(self) -> Writer:
        if self._writer is None:
            raise _closed()
        return self._writer

    def _count_made(self, writer: Writer) -> None:
        for made in writer.take_made():
            self._items_written += made.items
            self._keys += made.keys

    def _done(self, writer: Writer, pending: int, warning: str) -> list[int]:
        """Count, warn and wait if there is reason to; returns the keys that were not told yet."""
        self._count_made(writer)
        if warning:
            _warn(warning, 4)
        if pending >= MAX_PENDING and writer.pending > pending:
            try:
                writer.wait_pending(MAX_PENDING - 1 + writer.pending - pending, self._timeout)
            except DeadlineExceeded as error:
                raise DeadlineExceeded(
                    f"{error}. What this call was given was taken: do not give it again",
                    pending=error.pending,
                ) from None
        keys, self._keys = self._keys, []
        return keys


def _closed() -> Closed:
    return Closed("the writer is closed")


def _used_twice() -> ValueError:
    return ValueError("this writer is in use by another call; each thread needs a writer of its own")


def _warn(warning: str, stacklevel: int) -> None:
    if warning:
        warnings.warn(warning, stacklevel=stacklevel)


def _checked_rules(rules: Sequence[StepRule]) -> tuple[StepRule, ...]:
    if not isinstance(rules, list | tuple):
        raise TypeError(f"rules: expected a list of rules, got {rules!r}; put a single one into a list")
    for rule in rules:
        if not isinstance(rule, StepRule):
            raise TypeError(
                f"rules: expected an ItemRule, NStepRule, EpisodeRule or PatternRule, got {rule!r}"
            )
    if not rules:
        raise ValueError("rules: expected at least one rule, got none")
    return tuple(rules)


def _checked_timeout(timeout: float | None) -> float | None:
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not hasattr(timeout, "__float__"):
        raise TypeError(f"timeout: expected seconds or None, got {timeout!r}")
    seconds = float(timeout)
    if not seconds >= 0:
        raise ValueError(f"timeout: expected seconds >= 0 or None, got {timeout!r}")
    return seconds
