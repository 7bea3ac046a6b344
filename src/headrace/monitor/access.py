"""Access to the page: a token, names of this machine, and headers that keep browsers from loading anything else."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie
from typing import Any

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

OPEN_PATH = "/health"
"""Answers without a token; tells nothing but whether the page works."""
_SECONDS_AFTER_A_WRONG_TOKEN = 0.1
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class Access:
    """Middleware that answers only requests that may see the page.

    With a token, a request needs it as `Authorization: Bearer TOKEN`, or the cookie that `/?token=TOKEN` sets. Without
    one, a request must name this machine as its host, because a web page elsewhere could otherwise point a name of its
    own to 127.0.0.1 and read the answers (DNS rebinding).

    Args:
        app: answers.
        token: None for none.
        port: of the server; cookies of different ports are kept apart by their names.
    """

    def __init__(self, app: ASGIApp, token: str | None, port: int) -> None:
        self._app, self._token, self._cookie = app, token, f"headrace_{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request."""
        if scope["type"] != "http":
            return
        refused = None if scope["path"] == OPEN_PATH else await self._refuse(scope)
        await (refused or self._app)(scope, receive, _with_headers(send))

    async def _refuse(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if self._token is None:
            if is_loopback(_host_name(headers.get("host", ""))):
                return None
            return PlainTextResponse("421: this page answers to the name of its own machine only\n", 421)
        asked = QueryParams(scope["query_string"]).get("token")
        if asked is not None and scope["path"] == "/" and _same(asked, self._token):
            return self._welcome()
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and _same(given.strip(), self._token):
            return None
        if _same(_cookie(headers.get("cookie", ""), self._cookie), _proof(self._token)):
            return None
        await asyncio.sleep(_SECONDS_AFTER_A_WRONG_TOKEN)
        text = "401: this page needs its token. Open it as /?token=TOKEN\n"
        return PlainTextResponse(text, 401, {"WWW-Authenticate": "Bearer"})

    def _welcome(self) -> Response:
        """Returns the answer that keeps a proof of the token in a cookie, and leaves it out of the address."""
        assert self._token is not None
        response = RedirectResponse(".", 303)
        response.set_cookie(self._cookie, _proof(self._token), httponly=True, samesite="lax")
        return response


def is_loopback(host: str) -> bool:
    """Returns whether only this machine can reach a host.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0"), is_loopback("evil.example")
    (True, True, False, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _with_headers(send: Send) -> Callable[[Message], Any]:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(_HEADERS)
        await send(message)

    return sending


def _host_name(host: str) -> str:
    """Returns the name of a Host header without the port; IPv6 addresses without brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()


def _proof(token: str) -> str:
    return hmac.new(token.encode(), b"headrace monitor page", hashlib.sha256).hexdigest()


def _same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(), expected.encode())


def _cookie(header: str, name: str) -> str:
    try:
        found = SimpleCookie(header).get(name)
    except CookieError:
        return ""
    return "" if found is None else found.value
