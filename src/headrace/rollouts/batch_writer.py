"""Batches of rollouts into a replay: one lane for each agent of each environment."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Self

from headrace.batches.multi_agent_batch import MultiAgentBatch
from headrace.batches.sample_batch import SampleBatch
from headrace.errors import Closed, DeadlineExceeded, StoreFull
from headrace.rollouts.batch_rows import BatchRows
from headrace.trajectories.rules.step_rules import StepRule
from headrace.trajectories.writers.run_writer import RunWriter

if TYPE_CHECKING:
    from headrace.replay.interface import ReplayLike


class BatchWriter:
    """Writes the rows of one `RolloutWorker` to a replay, where items of any rules are made of them.

    Each agent of each environment has a lane. Episodes go on from batch to batch, so windows and n-step returns cross
    the ends of fragments. Leaving the context closes the writer, which ends unfinished episodes as cut.

    Args:
        replay: a `Replay`, or an object with its interface. Its signature has `observation`, `action`, `reward`,
            `terminated`, `truncated`, and under `extras` other columns of the batches that are to be stored.
        rules: what becomes items, as for `StepWriter`. With patterns, functions of priorities, or several rules of one
            table, rows are stored one by one, which is slower.
        timeout: as for `StepWriter`.

    Raises:
        As `StepWriter`.

    >>> import headrace as hr
    >>> step = {"observation": 0, "action": 0, "reward": 0.0, "terminated": False, "truncated": False}
    >>> fragment = {
    ...     "observation": [0, 1], "action": [5, 6], "reward": [1.0, 2.0], "terminated": [False] * 2,
    ...     "truncated": [False] * 2, "next_observation": [1, 2], "episode_id": [0, 0], "t": [0, 1]}
    >>> more = {**fragment, "observation": [2, 3], "next_observation": [3, 4], "t": [2, 3]}
    >>> with hr.Replay(hr.Signature.like(step), [hr.Table.queue("t", 9)]) as replay:
    ...     with BatchWriter(replay, [hr.ItemRule("t", length=5)]) as writer:
    ...         writer.write(SampleBatch(fragment))
    ...         writer.write(SampleBatch(more))
    ...     replay.sample("t", 1)["observation"]
    array([[0, 1, 2, 3, 4]])
    """

    def __init__(
        self, replay: ReplayLike, rules: Sequence[StepRule], *, timeout: float | None = None
    ) -> None:
        self._replay, self._rules, self._timeout = replay, rules, timeout
        self._writers = ExitStack()
        self._closed = False
        self._lanes: dict[tuple[int, int], _Lane] = {}
        # Made now, so that wrong arguments are refused now.
        self._unused: RunWriter | None = self._new_writer()

    def write(self, batch: SampleBatch | MultiAgentBatch) -> None:
        """Writes all rows of a batch.

        Args:
            batch: with the signature's columns, `next_observation`, `episode_id` and `t`; and with `env_id` and
                `agent_index` where there are several.

        Raises:
            SpecError: a column is missing or does not fit; nothing is stored.
            StoreFull: as `StepWriter.add`, in the middle of the batch.
            DeadlineExceeded: as `StepWriter.add`, in the middle of the batch.
            Closed: the writer or the replay is closed.
        """
        if self._closed:
            raise Closed("the writer is closed")
        batches = batch.policy_batches.values() if isinstance(batch, MultiAgentBatch) else [batch]
        for rows in [BatchRows(self._replay.signature, each) for each in batches if each.count]:
            for begin, end in rows.runs:
                self._lane(rows.agent(begin)).write(rows, begin, end)

    def close(self) -> None:
        """Ends all episodes as cut, and returns when every item is in its table. A second call does nothing."""
        self._closed = True
        self._writers.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed = True
        self._writers.__exit__(kind, error, trace)

    def _lane(self, agent: tuple[int, int]) -> _Lane:
        if agent not in self._lanes:
            writer, self._unused = self._unused or self._new_writer(), None
            self._lanes[agent] = _Lane(writer)
        return self._lanes[agent]

    def _new_writer(self) -> RunWriter:
        return self._writers.enter_context(RunWriter(self._replay, self._rules, timeout=self._timeout))


class _Lane:
    """The episodes of one agent.

    Args:
        writer: of its own.
    """

    def __init__(self, writer: RunWriter) -> None:
        self._writer = writer
        self._expected: tuple[int, int] | None = None

    def write(self, rows: BatchRows, begin: int, end: int) -> None:
        """Writes rows of one trajectory, which goes on if these are the rows that follow the last ones."""
        writer, place = self._writer, rows.place(begin)
        if place != self._expected:
            writer.reset()
            writer.add_first(rows.observation(begin))
        self._expected, before = None, writer.open_rows or 0
        try:
            if writer.takes_runs:
                writer.add_run(rows.transitions, begin, end)
            else:
                for row in range(begin, end):
                    writer.add(*rows.step(row))
        except (StoreFull, DeadlineExceeded):
            if writer.open_rows is not None:
                self._expected = (place[0], place[1] + writer.open_rows - before)
            raise
        if rows.goes_on(end - 1):
            self._expected = (place[0], place[1] + end - begin)
