"""Operations of a client's writer: the calls of `WriterLike` that change something.

The client numbers them; the server applies them in that order, each once.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from headrace.leases.messages import Message


class WriterMessage(Message, kw_only=True):
    """The root of these messages.

    Attributes:
        writer: its number in the client's session.
    """

    writer: int


class Given(msgspec.Struct, kw_only=True):
    """Priorities and windows that are given for one operation; see `WriterLike.give_priorities`.

    Attributes:
        priorities: maps numbers of rules to float64[m].
        rows, finals: map numbers of rules to bool[N]; see `Selection`.
    """

    priorities: dict[int, bytes] = {}
    rows: dict[int, bytes] = {}
    finals: dict[int, bytes] = {}


class Operation(WriterMessage, kw_only=True):
    """Client to server: something to do, after all operations with lower numbers.

    Attributes:
        sequence: 1 for the first operation, one more with each.
        must: True: the client waits, so an operation that finds no page fails. False: it waits for a page.
    """

    sequence: int
    must: bool = False


class StepsPlace(msgspec.Struct, array_like=True, frozen=True):
    """Place of vector steps in the memory that their writer shares with the server.

    Attributes:
        offset: first byte of their columns, `[capacity, lanes, ...]`, one behind the other.
        capacity: number of vector steps for which the columns have room.
        first: index of the first of these steps.
    """

    offset: int
    capacity: int
    first: int


class AppendSteps(Operation, kw_only=True):
    """Vector steps in which every lane takes a transition. The payload has columns `[steps, lanes, ...]`.

    `sequence` is that of the last step: each step has a number.

    Attributes:
        steps: the number of vector steps, at least 1.
        place: of the columns in shared memory; then there is no payload.
        version: of the policy that acted.
        given: for this step; then there is only one.
        is_recorded: whether the client asks which of the steps made which items.
    """

    steps: int
    version: int
    place: StepsPlace | None = None
    given: Given | None = None
    is_recorded: bool = False


class AppendEnds(Operation, kw_only=True):
    """A vector step with ends; see `WriterLike.append_ends`. The payload: columns `[lanes, ...]`, then final rows.

    Attributes:
        version: of the policy that acted.
        place: of the columns in shared memory; then the payload has the final rows alone.
        idle: bool[lanes].
        ended: int64[m].
        columns: of the final rows, `[m, ...]` each.
        given: for this step.
    """

    version: int
    place: StepsPlace | None = None
    idle: bytes
    ended: bytes
    columns: list[str]
    given: Given | None = None


class EndLanes(Operation, kw_only=True):
    """See `WriterLike.end_lanes`. The payload has the final rows.

    Attributes:
        lanes: int64[m].
        columns: of the final rows, `[m, ...]` each; None: there are none.
        given: for this call.
    """

    lanes: bytes
    columns: list[str] | None
    given: Given | None = None


class CutLanes(Operation, kw_only=True):
    """See `WriterLike.cut_open_lanes`.

    Attributes:
        end: the name of an `EndOfEpisode`, or None.
        given: for this call.
    """

    end: str | None
    given: Given | None = None


class DropLanes(Operation, kw_only=True):
    """See `WriterLike.drop_open_lanes`.

    Attributes:
        lanes: int64[m]; None: all.
    """

    lanes: bytes | None


class EndStreams(Operation, kw_only=True):
    """See `WriterLike.end_streams`.

    Attributes:
        lanes: int64[m]; None: all.
    """

    lanes: bytes | None


class CreateItem(Operation, kw_only=True):
    """See `WriterLike.create_item`.

    Attributes:
        table, length, priority, lane: of the item.
        key: one of those that the client was given (`Keys`).
    """

    table: str
    length: int
    priority: float | None
    lane: int
    key: int


class MakeRoom(Operation, kw_only=True):
    """See `WriterLike.make_room`.

    Attributes:
        steps: to be stored later.
        ended: as bytes of int64, or None.
    """

    steps: int
    ended: bytes | None = None


class DeclareFinals(Operation, kw_only=True):
    """See `WriterLike.declare_final_columns`.

    Attributes:
        columns: of final rows.
    """

    columns: list[str]


class DeclarePadding(Operation, kw_only=True):
    """See `WriterLike.declare_padding`. The payload has the value of each column.

    Attributes:
        table: its name.
        columns: that have values.
    """

    table: str
    columns: list[str]


class Report(Operation, kw_only=True):
    """Asks for the writer's state after the operations before."""


WriterOperation: TypeAlias = (
    AppendSteps
    | AppendEnds
    | EndLanes
    | CutLanes
    | DropLanes
    | EndStreams
    | CreateItem
    | MakeRoom
    | DeclareFinals
    | DeclarePadding
    | Report
)
