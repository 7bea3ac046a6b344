"""Messages of a client's writer and of the server's end of it.

The client numbers its operations; the server applies them in that order, each once, and reports how far it is. Rows,
final rows and values are the payload behind a message (`headrace.server.messages.columns`), in the order of the
signature's columns.

| message | from | meaning |
|---|---|---|
| `OpenWriter` | client | a new writer, or the same one over a new connection |
| `WriterOpened` | server | the writer is open |
| operations | client | the calls of `WriterLike` that change something |
| `WriterState` | server | these operations are applied; the pages and pending items of the writer |
| `Refused` | server | an operation, or the writer as a whole, failed with an error |
| `WaitPending`, `StopWaiting`, `Sync` | client | requests to be told |
| `Waited` | server | the answer to them |
| `WantKeys`, `Keys` | both | keys for `create_item`, given out ahead |
| `CloseWriter` | client | the writer is closed |
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from headrace.leases.messages import Message
from headrace.server.messages.failures import Failure


class RuleDescription(msgspec.Struct, kw_only=True):
    """A rule by which items are made.

    Attributes:
        kind: "item", "episode" or "pattern", for `ItemRule`, `WholeEpisodes` and `PatternWindow`.
        table, length, priority: of every kind.
        stride, end, lookahead: of an `ItemRule`.
        skip: of a `PatternWindow`.
    """

    kind: Literal["item", "episode", "pattern"]
    table: str
    length: int
    priority: float | None
    stride: int = 1
    end: str = "DROP"
    lookahead: int = 0
    skip: int = 0


class Given(msgspec.Struct, kw_only=True):
    """Priorities and windows that are given for one operation; see `WriterLike.give_priorities`.

    Attributes:
        priorities: maps numbers of rules to float64[m].
        rows, finals: map numbers of rules to bool[N]; see `Selection`.
    """

    priorities: dict[int, bytes] = {}
    rows: dict[int, bytes] = {}
    finals: dict[int, bytes] = {}


class WriterMessage(Message, kw_only=True):
    """The root of these messages.

    Attributes:
        writer: its number in the client's session.
    """

    writer: int


class OpenWriter(WriterMessage, kw_only=True):
    """Client to server: opens a writer.

    Attributes:
        replay: the name of the replay.
        lanes, history: see `Replay.writer`.
        rules: of the items.
        session: the name of the client's session, 16 random bytes.
        base: the last operation that is not sent again.
        lengths: int64[lanes], rows of the episode under way in each lane after it; empty for a new writer.
        streams: of the same moment; see `WriterState`.
        restored: operations up to this one only bring rows into reach; their items exist.
        taken: maps tables to the number of items that the operations up to `restored` have made.
        applied: maps tables to the number of items that the client knows to be applied.
        signature: of a step as the client sends it (`Signature.to_json`), since another replay may be served behind the
            same address meanwhile; None: not compared.
        shared_nbytes: of the sealed memory file whose descriptor comes along, in which steps lie (`StepsPlace`); 0: all
            steps are payloads.
    """

    replay: str
    lanes: int
    rules: list[RuleDescription]
    history: int | None
    session: bytes
    base: int = 0
    lengths: bytes = b""
    streams: list[bytes] = msgspec.field(default_factory=list)
    restored: int = 0
    taken: dict[str, int] = msgspec.field(default_factory=dict)
    applied: dict[str, int] = msgspec.field(default_factory=dict)
    signature: Any = None
    shared_nbytes: int = 0


class WriterOpened(WriterMessage, kw_only=True):
    """Server to client.

    Attributes:
        history: rows of a lane that stay in reach of later items.
        is_known: whether the server knows what the writer has made over earlier connections.
    """

    history: int
    is_known: bool


# ---- operations ------------------------------------------------------------------------------------------------------


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
    """

    steps: int


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


class WriterState(WriterMessage, kw_only=True):
    """Server to client: all operations up to this one are applied.

    Attributes:
        sequence: of the last operation that was applied.
        pending: number of items that wait for rate limiters.
        tables: maps tables to the number of items that wait for them.
        taken: maps tables to the number of items made by all operations so far, over earlier connections too.
        room: number of further vector steps for which the writer has pages.
        finals: number of further final rows beside the lanes for which it has a page.
        completes: whether the next step makes an item.
        waits: whether an operation waits for a page.
        streams: of each rule whose windows go on over the ends of episodes, int64[2, lanes]: the number of rows in the
            stream of each lane, and whether the lane waits.
        made: of the items made since the last state: number of the operation or recorded step, of the rule, first key,
            and count.
        refused: an error that kept items of stored rows from being made.
    """

    sequence: int
    pending: int
    room: int
    finals: int
    completes: bool
    waits: bool = False
    streams: list[bytes] = msgspec.field(default_factory=list)
    taken: dict[str, int] = msgspec.field(default_factory=dict)
    tables: dict[str, int] = msgspec.field(default_factory=dict)
    made: list[tuple[int, int, int, int]] = msgspec.field(default_factory=list)
    refused: Failure | None = None


class Refused(WriterMessage, kw_only=True):
    """Server to client: an operation changed nothing.

    Attributes:
        sequence: of the operation; 0: the writer could not be opened.
        failure: the error.
    """

    sequence: int
    failure: Failure


# ---- waiting ---------------------------------------------------------------------------------------------------------


class WaitPending(WriterMessage, kw_only=True):
    """Client to server: asks to be told when at most `most` items are pending.

    Attributes:
        ticket: of the answer.
        most: number of items.
    """

    ticket: int
    most: int


class StopWaiting(WriterMessage, kw_only=True):
    """Client to server: no answer is wanted any more.

    Attributes:
        ticket: of the request.
    """

    ticket: int


class Sync(WriterMessage, kw_only=True):
    """Client to server: asks to be told when everything that was applied is on the disk.

    Attributes:
        ticket: of the answer.
    """

    ticket: int


class Waited(WriterMessage, kw_only=True):
    """Server to client: what was asked for has come, or failed.

    Attributes:
        ticket: of the request.
        failure: the error.
    """

    ticket: int
    failure: Failure | None = None


class WantKeys(WriterMessage, kw_only=True):
    """Client to server: asks for keys."""


class Keys(WriterMessage, kw_only=True):
    """Server to client: keys for `CreateItem`.

    Attributes:
        first, count: of the keys.
    """

    first: int
    count: int


class CloseWriter(WriterMessage, kw_only=True):
    """Client to server: nothing more comes from this writer."""


WriterRequest: TypeAlias = (
    OpenWriter | WriterOperation | WaitPending | StopWaiting | Sync | WantKeys | CloseWriter
)
WriterAnswer: TypeAlias = WriterOpened | WriterState | Refused | Waited | Keys
LARGEST_ANSWER_NBYTES = 1 << 22
"""Largest message of a server to writers."""
MOST_SHARED_NBYTES = 1 << 26
"""Bytes that one writer shares with the server at most."""
