"""The first messages of a connection; nothing else is taken before them.

| message | from | meaning |
|---|---|---|
| `Hello` | both | magic and version (`headrace.leases`) |
| `Greeting` | client | a random value |
| `Challenge` | server | a random value, and whether a token is asked for |
| `Proof` | client | the client's proof |
| `Welcome` | server | the server's proof, and the replays and queues that it serves |
| `Refusal` | server | why it ends the connection |
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from headrace.leases.messages import Hello, Message


class Greeting(Message):
    """Client to server.

    Attributes:
        nonce: 32 random bytes.
    """

    nonce: bytes


class Challenge(Message):
    """Server to client.

    Attributes:
        nonce: 32 random bytes.
        needs_token: whether the client must prove that it knows the token.
    """

    nonce: bytes
    needs_token: bool


class Proof(Message):
    """Client to server.

    Attributes:
        mac: the client's proof; empty where no token is asked for.
        in_place: whether the client can map memory of the server.
        compressed: paths of the columns that the client wants compressed by zstd; unset: it does not speak zstd.
    """

    mac: bytes = b""
    in_place: bool = False
    compressed: list[str] | msgspec.UnsetType = msgspec.UNSET


class Served(msgspec.Struct, omit_defaults=True):
    """A replay, queue or set of weights that is served.

    Attributes:
        kind: of it.
        signature: of one step or sample, as `Signature.to_json` gives it; None for weights.
        tables: names of the tables of a replay.
        batch_size: samples in a batch of a queue.
    """

    kind: Literal["replay", "queue", "weights"]
    signature: Any
    tables: list[str] = []
    batch_size: int = 0


class Welcome(Message):
    """Server to client.

    Attributes:
        mac: the server's proof; empty where it asks for no token.
        version: of the server's Headrace.
        in_place: whether large batches come in shared memory.
        served: by name.
        compresses: whether payloads may be compressed in both directions; unset: they may not.
        payload_nbytes: bytes of the largest payload that the server takes; unset: those of the protocol.
    """

    mac: bytes
    version: str
    in_place: bool
    served: dict[str, Served]
    compresses: bool | msgspec.UnsetType = msgspec.UNSET
    payload_nbytes: int | msgspec.UnsetType = msgspec.UNSET


RefusalKind: TypeAlias = Literal["authentication", "protocol", "closed"]


class Refusal(Message):
    """Server to client: the connection ends.

    Attributes:
        kind: of the error at the client.
        reason: for its message.
    """

    kind: RefusalKind
    reason: str


ToServer: TypeAlias = Hello | Greeting | Proof
ToClient: TypeAlias = Hello | Challenge | Welcome | Refusal
LARGEST_NBYTES = 1 << 16
"""Largest message to a server before the proof."""
LARGEST_WELCOME_NBYTES = 1 << 20
