"""Options of sockets: the system takes messages of several batches at once, and notices a machine that is gone.

Over TCP it notices within 15 s that the machine behind an idle connection is silently gone. The systems of both
machines exchange these probes, so a program that computes for minutes is not taken for dead. There is no limit for data
that are not acknowledged (TCP_USER_TIMEOUT), because it would also end a connection whose other side does not read for
a while. Where something is expected of the other side, `headrace.server.heartbeat` watches it.
"""

from __future__ import annotations

import socket

# Linux gives a Unix socket 208 KiB, less than a message of several small batches has, and both sides would wake each
# other twice a message. TCP sockets grow by themselves.
_UNIX_SEND_NBYTES = 1 << 20
_IDLE_SECONDS = 5
_INTERVAL_SECONDS = 3
_PROBES = 3
_OPTIONS = {
    "TCP_KEEPIDLE": _IDLE_SECONDS,
    "TCP_KEEPALIVE": _IDLE_SECONDS,  # The same on macOS.
    "TCP_KEEPINTVL": _INTERVAL_SECONDS,
    "TCP_KEEPCNT": _PROBES,
}


def set_options(connection: socket.socket) -> None:
    """Sets the options of a connection.

    A Unix socket gets a larger buffer, as far as the system allows it. On a TCP connection the heartbeat is switched
    on, and small frames are sent without delay.
    """
    if connection.family not in (socket.AF_INET, socket.AF_INET6):
        if connection.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) < _UNIX_SEND_NBYTES:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _UNIX_SEND_NBYTES)
        return
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _OPTIONS.items():
        option = getattr(socket, name, None)
        if option is not None:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)
