"""Proof that both sides know a token, which itself is never sent.

Each side sends a fresh random value, and then an HMAC-SHA256, with the token as key, of its own role and both values.
So a recorded proof is worth nothing in another session, and the proof of one side cannot be sent back by the other.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from typing import Literal

NONCE_NBYTES = 32


def token_bytes(token: str | bytes | None) -> bytes | None:
    """Returns a token as bytes.

    Raises:
        TypeError: not a string, bytes or None.
        ValueError: an empty token.
    """
    if token is None:
        return None
    if not isinstance(token, str | bytes):
        raise TypeError(f"token: expected a string or bytes, got {type(token).__name__}")
    if not token:
        raise ValueError(
            "token: expected a secret of at least one byte, got an empty one; None asks for no token"
        )
    return token.encode() if isinstance(token, str) else token


def new_nonce() -> bytes:
    """Returns a fresh random value."""
    return os.urandom(NONCE_NBYTES)


def proof(token: bytes, role: Literal["client", "server"], client_nonce: bytes, server_nonce: bytes) -> bytes:
    """Returns the proof of one side.

    >>> proof(b"secret", "client", bytes(32), bytes(32)) == proof(b"secret", "server", bytes(32), bytes(32))
    False
    """
    return hmac.new(
        token, b"headrace " + role.encode() + client_nonce + server_nonce, hashlib.sha256
    ).digest()


def is_proof(
    found: bytes,
    token: bytes,
    role: Literal["client", "server"],
    client_nonce: bytes,
    server_nonce: bytes,
) -> bool:
    """Whether `found` is the proof of a side; the time that it takes does not depend on where they differ."""
    return hmac.compare_digest(found, proof(token, role, client_nonce, server_nonce))
