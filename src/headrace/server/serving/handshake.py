"""The server's side of the handshake."""

from __future__ import annotations

from typing import Any

from headrace.errors import AuthenticationError
from headrace.leases.checking import LeaseError
from headrace.server.auth import NONCE_NBYTES, is_proof, new_nonce, proof
from headrace.server.messages.handshake import Challenge, Greeting, Proof


class ServerHandshake:
    """Checks one client: a `Greeting`, then a `Proof`.

    Args:
        token: that the client must know; None asks for none.
    """

    def __init__(self, token: bytes | None) -> None:
        self._token = token
        self._nonce = new_nonce()
        self._client_nonce: bytes | None = None

    def challenge(self, message: Any) -> Challenge:
        """Returns the answer to the greeting.

        Raises:
            LeaseError: another message.
        """
        if (
            not isinstance(message, Greeting)
            or len(message.nonce) != NONCE_NBYTES
            or self._client_nonce is not None
        ):
            raise LeaseError(f"expected a greeting, got {type(message).__name__}")
        self._client_nonce = message.nonce
        return Challenge(nonce=self._nonce, needs_token=self._token is not None)

    @property
    def is_greeted(self) -> bool:
        """Whether the greeting has come."""
        return self._client_nonce is not None

    def own_proof(self, message: Any) -> bytes:
        """Checks the client's proof, and returns the server's own.

        Raises:
            LeaseError: another message.
            AuthenticationError: the client does not know the token.
        """
        if not isinstance(message, Proof) or self._client_nonce is None:
            raise LeaseError(f"expected a proof, got {type(message).__name__}")
        if self._token is None:
            return b""
        if not is_proof(message.mac, self._token, "client", self._client_nonce, self._nonce):
            raise AuthenticationError(
                "the server asks for a token, and this client has none or another; pass token= to hr.Client"
                if not message.mac
                else "the token of this client is not that of the server"
            )
        return proof(self._token, "server", self._client_nonce, self._nonce)
