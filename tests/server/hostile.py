"""Well-formed frames with hostile contents, and plain connections that send them."""

import socket
import types
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from hypothesis import strategies as st

from headrace.leases.frames import encoded
from headrace.leases.messages import VERSION, Hello
from headrace.server.auth import NONCE_NBYTES
from headrace.server.messages.handshake import Greeting, Proof
from headrace.server.messages.packed import Packed
from headrace.server.messages.requests import AnyRequest
from headrace.server.messages.writing import WriterRequest

SESSION = (
    encoded(Hello(version=VERSION))
    + encoded(Greeting(nonce=bytes(NONCE_NBYTES)))
    + encoded(Proof(compressed=[""]))
)

INTEGERS = st.one_of(
    st.integers(-2, 4), st.sampled_from([2**31, 2**40, 2**62, 2**63 - 1, -(2**63), 10**6, 10**9])
)
FLOATS = st.one_of(
    st.sampled_from([0.0, -1.0, 1.0, 1e308, -1e308, float("inf"), float("-inf"), float("nan")]), st.floats()
)
STRINGS = st.one_of(
    st.sampled_from(
        ["r", "t", "q", "b", "n", "item", "pattern", "DROP", "uint8", "O", "../..", "0:1000000000000"]
    ),
    st.text(max_size=5),
)
BYTES = st.one_of(
    st.sampled_from([b"", bytes(16), bytes(8), bytes(1), b"\xff" * 8, b"\x01" + bytes(15)]),
    st.binary(max_size=40),
)


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Returns values of a type; most are not sensible."""
    if kind in (int, float, str, bytes, bool):
        return {int: INTEGERS, float: FLOATS, str: STRINGS, bytes: BYTES, bool: st.booleans()}[kind]
    if kind is type(None):
        return st.none()
    if kind is Any:
        return st.recursive(
            st.none() | INTEGERS | STRINGS, lambda inner: st.lists(inner, max_size=3), max_leaves=5
        )
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return st.one_of(*map(values, parts))
    if origin is Literal:
        return st.sampled_from(parts)
    if origin is list:
        return st.lists(values(parts[0]), max_size=4)
    if origin is tuple:
        if parts[-1] is Ellipsis:
            return st.lists(values(parts[0]), max_size=4).map(tuple)
        return st.tuples(*map(values, parts))
    if origin is dict:
        return st.dictionaries(values(parts[0]), values(parts[1]), max_size=3)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return structs(kind)
    raise NotImplementedError(f"{kind}")


def structs(kind: Any) -> st.SearchStrategy[Any]:
    """Returns records of a class with values of the right types."""
    hints = get_type_hints(kind)
    return st.fixed_dictionaries({name: values(hints[name]) for name in kind.__struct_fields__}).map(
        lambda fields: kind(**fields)
    )


MESSAGES = st.one_of(*(structs(kind) for kind in {*get_args(AnyRequest), *get_args(WriterRequest), Packed}))


def frames(most: int) -> st.SearchStrategy[bytes]:
    """Returns frames of messages that a server takes, one after the other, with any payloads."""
    frame = st.tuples(MESSAGES, st.one_of(st.just(b""), st.binary(max_size=64))).map(
        lambda pair: encoded(*pair)
    )
    return st.lists(frame, min_size=1, max_size=most).map(b"".join)


def connected(server):
    """Returns a plain connection to a server."""
    host, port = server.address.removeprefix("tcp://").split(":")
    return socket.create_connection((host, int(port)), timeout=10)


def said_to(server, data):
    """Sends bytes, and returns what comes until the server ends the connection."""
    found = b""
    with connected(server) as peer:
        try:
            peer.sendall(data)
            peer.shutdown(socket.SHUT_WR)
            while piece := peer.recv(1 << 16):
                found += piece
        except OSError:  # The server was first.
            pass
    return found
