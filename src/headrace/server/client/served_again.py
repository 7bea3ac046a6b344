"""Checks that a server serves the kind of object that a client was made for."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.errors import SpecError
from headrace.server.messages.handshake import Served
from headrace.spec import Signature, first_difference


def check_same(served: Mapping[str, Served], name: str, signature: Signature, peer: str) -> None:
    """Checks that the server behind a new connection has the same replay or queue, by path, shape and dtype.

    Raises:
        KeyError: no such name.
        SpecError: another signature; the message has the first difference.
    """
    if name not in served:
        raise KeyError(f"{peer} serves no {name!r} any more; there are {', '.join(map(repr, served))}")
    found = served[name].signature
    difference = (
        "it is a set of weights" if found is None else first_difference(signature, Signature.from_json(found))
    )
    if difference:
        raise SpecError(
            f"{name!r} on {peer} is another one since the connection was made again: {difference}"
        )
