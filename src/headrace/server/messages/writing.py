"""Messages of a client's writer and of the server's end of it.

The client numbers its operations; the server applies them in that order, each once, and reports how far it is. Rows,
final rows and values are the payload behind a message (`headrace.server.messages.columns`), in the order of the
signature's columns.

| message | from | meaning |
|---|---|---|
| `OpenWriter` | client | a new writer, or the same one over a new connection |
| `WriterOpened` | server | the writer is open |
| operations | client | see `headrace.server.messages.operations` |
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

from headrace.server.messages.failures import Failure
from headrace.server.messages.operations import WriterMessage, WriterOperation


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
        lacks_memory: whether pending items wait for memory or disk space.
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
    lacks_memory: bool = False
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
        is_closed: whether the replay is closed, into which nothing goes any more.
    """

    ticket: int
    failure: Failure | None = None
    is_closed: bool = False


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
