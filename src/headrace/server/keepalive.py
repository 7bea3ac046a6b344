"""The heartbeat of a TCP connection: the system notices within 15 s that the other machine is silently gone.

The systems of both machines exchange the heartbeats, so a program that computes for minutes is not taken for dead.
"""

from __future__ import annotations

import socket

_IDLE_SECONDS = 5
_INTERVAL_SECONDS = 3
_PROBES = 3
_OPTIONS = {
    "TCP_KEEPIDLE": _IDLE_SECONDS,
    "TCP_KEEPALIVE": _IDLE_SECONDS,  # The same on macOS.
    "TCP_KEEPINTVL": _INTERVAL_SECONDS,
    "TCP_KEEPCNT": _PROBES,
    # Milliseconds for which sent data may stay without an acknowledgement.
    "TCP_USER_TIMEOUT": 1000 * (_IDLE_SECONDS + _INTERVAL_SECONDS * _PROBES),
}


def set_options(connection: socket.socket) -> None:
    """Switches the heartbeat of a TCP connection on, and sends small frames without delay; nothing for others."""
    if connection.family not in (socket.AF_INET, socket.AF_INET6):
        return
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _OPTIONS.items():
        option = getattr(socket, name, None)
        if option is not None:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)
