"""The operations of a writer that a server may need again: those in flight, and those whose rows are in reach."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.leases.frames import Payload
from headrace.leases.messages import ROWS
from headrace.server.client.writers.lane_lengths import LaneLengths
from headrace.server.client.writers.operation_use import NO_USE, Use
from headrace.server.client.writers.step_buffer import StepBuffer
from headrace.server.client.writers.step_memory import SharedSteps
from headrace.server.messages.operations import (
    AppendEnds,
    AppendSteps,
    CutLanes,
    DropLanes,
    EndLanes,
    Operation,
    Report,
)
from headrace.server.messages.writing import WriterState

Counts = Mapping[str, int]


class Logged(NamedTuple):
    """An operation with its payload.

    Attributes:
        streams: after it; see `WriterState`.
    """

    operation: Operation
    payload: Payload | SharedSteps
    use: Use
    streams: list[bytes]


class _Mark(NamedTuple):
    """The items that were made by all operations up to one."""

    sequence: int
    taken: Counts


class OperationLog:
    """Operations in their order, from the first one that a server without memory of the writer would need.

    An operation whose items are applied is kept until its rows are out of reach; the others until they are applied.

    Args:
        lanes: number of lanes.

    Attributes:
        sequence: the number of the newest operation.
        flying: operations that the server has not reported to be applied.
        steps, finals, items, nbytes: sums over these.
        history: vector steps that stay in reach of later items.
        base: the number of the last operation that is forgotten.
        lengths: int64[lanes], rows of the episode under way in each lane after it.
        streams: after it; see `WriterState`.
        applied: maps tables to the number of items that are known to be applied.

    >>> from headrace.server.client.writers.step_memory import StepMemory
    >>> from headrace.spec import Signature
    >>> log, buffer = OperationLog(1), StepBuffer(StepMemory(Signature.like({"n": np.int8(0)}), 1, 0))
    >>> log.add(Report(writer=0, sequence=1), b"", Use(steps=3), buffer)
    >>> log.confirm(WriterState(writer=0, sequence=1, pending=0, room=0, finals=0, completes=False))
    >>> len(log.flying), log.steps
    (0, 0)
    """

    def __init__(self, lanes: int) -> None:
        self.sequence = 0
        self.flying: deque[Logged] = deque()
        self.steps = self.finals = self.items = self.nbytes = 0
        self.history = 1
        self.base = 0
        self.lengths: NDArray[np.int64] = np.zeros(lanes, np.int64)
        self.streams: list[bytes] = []
        self.applied: Counts = {}
        # Operations whose items are not all applied, and before them those whose items are.
        self._confirmed: deque[Logged] = deque()
        self._finished: deque[Logged] = deque()
        self._steps_finished = 0
        self._mark = _Mark(0, {})
        self._marks: deque[_Mark] = deque()

    def add(
        self,
        operation: Operation,
        payload: Payload | SharedSteps,
        use: Use,
        collected: StepBuffer,
        lengths: LaneLengths | None = None,
    ) -> None:
        """Adds the newest operation. It has, or comes after, all collected steps.

        Args:
            operation: its number is one more than `sequence`; of steps: one more for each of them.
            payload, use: of it.
            collected: becomes empty.
            lengths: of the lanes after the operation; None: it changes none.
        """
        after = collected.lengths if lengths is None else lengths
        logged, nbytes, steps = Logged(operation, payload, use, []), len(payload), _vector_steps(operation)
        # No call between these: Ctrl-C comes before or after all of them (test_interrupts_of_writers.py).
        collected.first += steps
        collected.count, collected.use = 0, NO_USE
        collected.lengths = after
        self.steps += use.steps
        self.finals += use.finals
        self.items += use.items
        self.nbytes += nbytes
        self.sequence = operation.sequence
        self.flying.append(logged)

    def confirm(self, state: WriterState) -> None:
        """Notes a report of the server."""
        flying = self.flying
        while flying and flying[0].operation.sequence <= state.sequence:
            logged = flying.popleft()
            is_last = logged.operation.sequence == state.sequence
            self._confirmed.append(logged._replace(streams=state.streams) if is_last else logged)
            self._subtract(logged)
        if not flying or _first(flying[0].operation) > state.sequence:
            if self._marks and self._marks[-1].sequence == state.sequence:
                self._marks.pop()
            self._marks.append(_Mark(state.sequence, state.taken))
        self.applied = {table: count - state.tables.get(table, 0) for table, count in state.taken.items()}
        self._forget()

    def refuse(self, sequence: int) -> Logged | None:
        """Replaces an operation in flight, which changed nothing, by one without effect; returns it."""
        for place, logged in enumerate(self.flying):
            operation = logged.operation
            if operation.sequence == sequence:
                nothing = Report(writer=operation.writer, sequence=sequence)
                self.flying[place] = Logged(nothing, b"", NO_USE, [])
                self._subtract(logged)
                return logged
        return None

    def _subtract(self, logged: Logged) -> None:
        self.steps -= logged.use.steps
        self.finals -= logged.use.finals
        self.items -= logged.use.items
        self.nbytes -= len(logged.payload)

    def _forget(self) -> None:
        while self._marks and all(
            count <= self.applied.get(table, 0) for table, count in self._marks[0].taken.items()
        ):
            self._mark = self._marks.popleft()
        while self._confirmed and self._confirmed[0].operation.sequence <= self._mark.sequence:
            logged = self._confirmed.popleft()
            self._finished.append(logged)
            self._steps_finished += _vector_steps(logged.operation)
        while self._finished:
            steps = _vector_steps(self._finished[0].operation)
            if self._steps_finished - steps < self.history:
                break
            self._steps_finished -= steps
            operation, _, _, self.streams = self._finished.popleft()
            self.base = operation.sequence
            _change_lengths(self.lengths, operation)

    @property
    def restored(self) -> tuple[int, Counts]:
        """The last operation whose items are all applied, and the numbers of items up to it."""
        return self._mark

    def kept(self) -> list[Logged]:
        """Returns the operations after `base`."""
        return [*self._finished, *self._confirmed, *self.flying]


def _first(operation: Operation) -> int:
    """Returns the first number of an operation."""
    return operation.sequence - (operation.steps - 1 if isinstance(operation, AppendSteps) else 0)


def _vector_steps(operation: Operation) -> int:
    if isinstance(operation, AppendSteps):
        return operation.steps
    return int(isinstance(operation, AppendEnds))


def _change_lengths(lengths: NDArray[np.int64], operation: Operation) -> None:
    match operation:
        case AppendSteps(steps=steps):
            lengths += steps
        case AppendEnds(idle=idle, ended=ended):
            lengths[~np.frombuffer(idle, np.bool_)] += 1
            lengths[np.frombuffer(ended, ROWS)] = 0
        case EndLanes(lanes=lanes):
            lengths[np.frombuffer(lanes, ROWS)] = 0
        case DropLanes(lanes=lanes) if lanes is not None:
            lengths[np.frombuffer(lanes, ROWS)] = 0
        case DropLanes() | CutLanes():
            lengths[:] = 0
