"""Operations of a client's writer, checked and applied to a writer of the replay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headrace.ends import EndOfEpisode
from headrace.errors import SpecError
from headrace.leases.frames import Payload
from headrace.leases.messages import ROWS
from headrace.replay.intake.selection import Selection
from headrace.server.messages.columns import Form, checked_bools, unpacked_arrays, unpacked_numbers
from headrace.server.messages.operations import (
    AppendEnds,
    AppendSteps,
    CreateItem,
    CutLanes,
    DeclareFinals,
    DeclarePadding,
    DropLanes,
    EndLanes,
    EndStreams,
    Given,
    MakeRoom,
    Operation,
    StepsPlace,
)
from headrace.server.messages.writing import OpenWriter
from headrace.server.serving.writers.client_memory import ClientMemory
from headrace.server.serving.writers.row_writer import ServedRowWriter
from headrace.spec import Signature, first_difference

# The name of a column, and the axes before those of the signature.
_Wanted: TypeAlias = tuple[str, tuple[int, ...]]
_PRIORITIES = np.dtype("<f8")
_VERSIONS = np.iinfo(np.int32)
_SESSION_NBYTES = 16
_MOST_RULES = 256
_MOST_WINDOW_ROWS = 1 << 26
# Of rows for which a client asks for pages at once: as many as a payload may have.
_MOST_ROOM_NBYTES = 1 << 30


def check_opening(opening: OpenWriter, signature: Signature) -> None:
    """Checks the signature of steps, and the numbers in proportion to which a writer takes memory.

    Raises:
        SpecError: the replay has another signature, maybe of the same size.
        ValueError: one of them is too large, or the name of the session is not one.
    """
    if len(opening.session) != _SESSION_NBYTES:
        raise ValueError(f"session: expected {_SESSION_NBYTES} bytes, got {len(opening.session)}")
    if opening.signature is not None:
        difference = first_difference(Signature.from_json(opening.signature), signature)
        if difference:
            raise SpecError(
                f"replay {opening.replay!r} has another signature than the client's: {difference}"
            )
    longest = max((rule.length + rule.lookahead for rule in opening.rules), default=0)
    if longest * opening.lanes > _MOST_WINDOW_ROWS or len(opening.rules) > _MOST_RULES:
        raise ValueError(
            f"items: expected at most {_MOST_RULES} rules, of at most {_MOST_WINDOW_ROWS} rows in all lanes, for a "
            f"writer of a client, got {len(opening.rules)} rules of up to {longest} rows in {opening.lanes} lanes"
        )


class Operations:
    """Applies operations to a writer. Everything that a client sent is checked before the writer sees it.

    Args:
        writer: of the replay.
        signature: of a step.
        memory: in which the client's steps may lie; None: all are payloads.
    """

    def __init__(self, writer: ServedRowWriter, signature: Signature, memory: ClientMemory | None) -> None:
        self._writer = writer
        self._memory = memory
        self._specs = signature.columns
        self._row_nbytes = signature.nbytes
        self._lanes = writer.lanes

    def columns(self, operation: AppendSteps, payload: Payload) -> dict[str, NDArray[Any]]:
        """Returns the columns of steps, `[steps, lanes, ...]`.

        Raises:
            ValueError: the payload does not have their length, or their place is not in the client's memory.
        """
        if operation.steps < 1 or (operation.given is not None and operation.steps != 1):
            raise ValueError(
                f"steps: expected at least 1, and 1 with given priorities, got {operation.steps}"
            )
        if operation.place is None:
            return self._steps(payload, operation.steps)
        if payload:
            raise ValueError(
                f"payload: expected none behind steps in shared memory, got {len(payload)} bytes"
            )
        return self._shared_steps(operation.place, operation.steps)

    def _shared_steps(self, place: StepsPlace, count: int) -> dict[str, NDArray[Any]]:
        """Returns the columns `[count, lanes, ...]` of steps in the client's memory.

        Raises:
            ValueError: they do not lie within it.
        """
        if self._memory is None:
            raise ValueError("place: expected steps in a payload, since the writer shares no memory")
        if not 0 <= place.first <= place.capacity - count:
            raise ValueError(
                f"place: expected {count} steps within {place.capacity}, got {place.first} as the first"
            )
        shared = self._memory.payload(place.offset, place.capacity * self._lanes * self._row_nbytes)
        steps = slice(place.first, place.first + count)
        return {name: column[steps] for name, column in self._steps(shared, place.capacity).items()}

    def _steps(self, payload: Payload, count: int) -> dict[str, NDArray[Any]]:
        """Returns the columns `[count, lanes, ...]` in a payload."""
        return self._unpacked(payload, [(name, (count, self._lanes)) for name in self._specs])

    def apply(self, operation: Operation, payload: Payload) -> None:
        """Applies an operation other than `AppendSteps`.

        Raises:
            ValueError: it is not one of a writer in this state; nothing changed.
            StoreFull, SpecError, KeyError: see `WriterLike`.
        """
        writer = self._writer
        match operation:
            case AppendEnds():
                self._append_ends(operation, payload)
            case EndLanes():
                self._end_lanes(operation, payload)
            case CutLanes(end=end, given=given):
                if end is not None and end not in EndOfEpisode.__members__:
                    raise ValueError(f"end: expected a member of EndOfEpisode, got {end!r}")
                self.give(given)
                writer.cut_open_lanes(None if end is None else EndOfEpisode[end])
            case DropLanes(lanes=lanes):
                writer.drop_open_lanes(self._rising(lanes))
            case EndStreams(lanes=lanes):
                writer.end_streams(self._rising(lanes))
            case CreateItem(key=key, table=table, length=length, priority=priority, lane=lane):
                writer.create_item_as(key, table, length, priority, lane)
            case MakeRoom(steps=steps, ended=ended):
                self._make_room(steps, self._rising(ended))
            case DeclareFinals(columns=columns):
                self._check_names(columns)
                writer.declare_final_columns(columns)
            case DeclarePadding(table=table, columns=columns):
                writer.declare_padding(table, self._unpacked(payload, [(name, ()) for name in columns]))

    def _make_room(self, steps: int, ended: NDArray[np.int64] | None) -> None:
        most = max(1, _MOST_ROOM_NBYTES // max(1, self._lanes * self._row_nbytes))
        if not 0 <= steps <= most:
            raise ValueError(f"make_room: expected at most {most} steps at once over a client, got {steps}")
        self._writer.make_room(steps, ended)

    def _append_ends(self, operation: AppendEnds, payload: Payload) -> None:
        ended = self._rising(operation.ended)
        assert ended is not None
        idle = checked_bools(np.frombuffer(operation.idle, np.bool_))
        if len(idle) != self._lanes or idle[ended].any():
            raise ValueError(f"idle: expected {self._lanes} lanes, of which none ends, got {len(idle)}")
        if (self._writer.open_lanes & idle).any():
            raise ValueError("idle: expected lanes without an episode under way")
        finals: list[_Wanted] = [(name, (len(ended),)) for name in self._check_names(operation.columns)]
        if operation.place is None:
            forms: list[_Wanted] = [(name, (self._lanes,)) for name in self._specs]
            arrays = self._arrays(payload, forms + finals)
            step = dict(zip(self._specs, arrays, strict=False))
        else:
            arrays = self._arrays(payload, finals)
            step = {name: column[0] for name, column in self._shared_steps(operation.place, 1).items()}
        self.set_version(operation.version)
        self.give(operation.given)
        self._writer.append_ends(
            step,
            idle,
            ended,
            dict(zip(operation.columns, arrays[len(arrays) - len(finals) :], strict=True)),
        )

    def _end_lanes(self, operation: EndLanes, payload: Payload) -> None:
        lanes = self._rising(operation.lanes)
        assert lanes is not None
        if not self._writer.open_lanes[lanes].all():
            raise ValueError("lanes: expected lanes with an episode under way")
        finals = None
        if operation.columns is not None:
            names = self._check_names(operation.columns)
            finals = self._unpacked(payload, [(name, (len(lanes),)) for name in names])
        self.give(operation.given)
        self._writer.end_lanes(lanes, finals)

    def set_version(self, version: int) -> None:
        """Sets the version of the policy that acted in the steps from here on.

        Raises:
            ValueError: it does not fit.
        """
        # Collectors send -1 where the version is unknown.
        least, most = _VERSIONS.min, _VERSIONS.max
        if not least <= version <= most:
            raise ValueError(f"version: expected a number from {least} to {most}, got {version}")
        self._writer.policy_version = version

    def give(self, given: Given | None) -> None:
        """Passes on the priorities and windows of the next call.

        Raises:
            ValueError: they are not those of a rule.
        """
        if given is None:
            return
        priorities = {
            rule: unpacked_numbers("priorities", data, _PRIORITIES).copy()
            for rule, data in given.priorities.items()
        }
        for values in priorities.values():
            if not (np.isfinite(values) & (values >= 0)).all():
                raise ValueError("priorities: expected finite numbers >= 0")
        if priorities:
            self._writer.give_priorities(priorities)
        if given.rows or given.finals:
            self._writer.select_windows(Selection(self._masks(given.rows), self._masks(given.finals)))

    def _masks(self, given: Mapping[int, bytes]) -> dict[int, NDArray[np.bool_]]:
        masks = {rule: checked_bools(np.frombuffer(data, np.bool_)) for rule, data in given.items()}
        for mask in masks.values():
            if len(mask) != self._lanes:
                raise ValueError(f"windows: expected masks of {self._lanes} lanes, got {len(mask)}")
        return masks

    def _rising(self, data: bytes | None) -> NDArray[np.int64] | None:
        if data is None:
            return None
        lanes: NDArray[np.int64] = unpacked_numbers("lanes", data, ROWS).copy()
        if len(lanes) and (lanes[0] < 0 or lanes[-1] >= self._lanes or not (lanes[1:] > lanes[:-1]).all()):
            raise ValueError(f"lanes: expected rising numbers from 0 to {self._lanes - 1}")
        return lanes

    def _check_names(self, names: list[str]) -> list[str]:
        unknown = [name for name in names if name not in self._specs]
        if unknown or len({*names}) < len(names):
            raise ValueError(f"columns: expected some of {', '.join(self._specs)}, each once, got {names}")
        return names

    def _unpacked(self, payload: Payload, wanted: list[_Wanted]) -> dict[str, NDArray[Any]]:
        names = self._check_names([name for name, _ in wanted])
        return dict(zip(names, self._arrays(payload, wanted), strict=True))

    def _arrays(self, payload: Payload, wanted: Sequence[_Wanted]) -> list[NDArray[Any]]:
        forms = [
            Form((*leading, *self._specs[name].shape), self._specs[name].dtype) for name, leading in wanted
        ]
        return [checked_bools(array) for array in unpacked_arrays(payload, forms)]
