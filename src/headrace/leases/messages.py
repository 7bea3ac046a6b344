"""Messages of the lease protocol: the only way in which rows come from another process.

A *writer* fills pages of a store with vector steps of its lanes. The *grantor* beside the store leases it pages, and
makes what it reports part of the store. One connection may have several writers.

| message | from | meaning |
|---|---|---|
| `Hello` | both | the first message: the version of the protocol |
| `Lease` | grantor | the writer may fill this page |
| `Commit` | writer | these steps of a leased page are written |
| `Ack` | grantor | this commit is part of the store |
| `Return` | writer | nothing more will be written into this page |
| `Pin` | grantor | rows of these pages stay as they are: the peer may read them in place |
| `Unpin` | reader | these pages are not read any more |
| `Goodbye` | both | nothing more will come |

Arrays travel as bytes of a fixed little-endian dtype, so that nothing received is ever unpickled.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from headrace.errors import Disconnected

VERSION = 1

ROWS = np.dtype("<i8")
POLICY_VERSIONS = np.dtype("<i4")


class Message(msgspec.Struct, tag=True, kw_only=True):
    """The root of all messages."""


class Hello(Message):
    """The first message of both sides.

    Attributes:
        version: of the protocol that the sender speaks.
    """

    version: int


class Lease(Message):
    """Grantor to writer: a page to fill. It is the writer's until it is full, returned, or the connection ends.

    Attributes:
        writer: whose page it is.
        page: its number in the arena.
        purpose: "rows" for vector steps, "finals" for final rows that stand beside their lanes.
    """

    writer: int
    page: int
    purpose: Literal["rows", "finals"]


class Commit(Message):
    """Writer to grantor: vector steps are written, and episodes end in them.

    Rows are counted from the first row of these steps: row `step * lanes + lane`. All arrays of rows and lanes rise.
    The columns of a peer that cannot map the arena are the payload behind this message (`headrace.leases.payload`).

    Attributes:
        writer: the number of the writer.
        sequence: 1 for its first commit, one more with each.
        page: a page that is leased to it for rows, the oldest that is neither full nor returned.
        steps: the number of vector steps; 0 where only episodes are cut.
        versions: int32[steps], the version of the policy that acted at each step, or int32[steps * lanes], at each row;
            0: unknown.
        final: int64[f], rows that hold the final row of their lane's episode.
        idle: int64[i], rows of lanes that hold nothing.
        ended: int64[m], rows of the last transitions of episodes whose final rows stand in a page of their own.
        cut: int64[c], lanes whose open episodes end after these steps, with a final row in a page of its own.
        final_rows: int64[m + c], the final rows of `ended`, then those of `cut`, as rows of the store: the next ones of
            the pages that are leased for final rows.
        shows_next: whether the payload has the observations after the last step, too.
    """

    writer: int
    sequence: int
    page: int
    steps: int
    versions: bytes
    final: bytes = b""
    idle: bytes = b""
    ended: bytes = b""
    cut: bytes = b""
    final_rows: bytes = b""
    shows_next: bool = False


class Ack(Message):
    """Grantor to writer: this commit, and every earlier one, is part of the store."""

    writer: int
    sequence: int


class Return(Message):
    """Writer to grantor: nothing more is written into this page; later commits are of later pages."""

    writer: int
    page: int


class Pin(Message):
    """Grantor to reader: these pages stay as they are until they are unpinned; a page may be pinned several times."""

    pages: list[int]


class Unpin(Message):
    """Reader to grantor: gives back one pin of each of these pages."""

    pages: list[int]


class Goodbye(Message):
    """Nothing more will come from this side.

    Attributes:
        reason: the cause, for the other side.
        stops: whether this side only stops, and one that starts again behind its address may go on. False: the other
            side broke the protocol, or is done.
        lacks: whether messages of the other side did not arrive, which may come again and send them again.
    """

    reason: str = ""
    stops: bool = False
    lacks: bool = False


LeaseMessage: TypeAlias = Hello | Lease | Commit | Ack | Return | Pin | Unpin | Goodbye


def packed(values: Any, dtype: np.dtype[Any] = ROWS) -> bytes:
    """The bytes of an array on the wire."""
    # Most are empty: a report without ends of episodes has five of them.
    return np.ascontiguousarray(values, dtype).tobytes() if len(values) else b""


def unpacked(data: bytes, name: str, dtype: np.dtype[Any] = ROWS) -> NDArray[Any]:
    """The array of some bytes of a message.

    Raises:
        Disconnected: they are not a whole number of entries.
    """
    if len(data) % dtype.itemsize:
        raise Disconnected(f"{name}: expected a multiple of {dtype.itemsize} bytes, got {len(data)}")
    return np.frombuffer(data, dtype)
