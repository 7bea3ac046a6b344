"""Sockets that listen for clients."""

from __future__ import annotations

import errno
import os
import socket
import stat
from contextlib import suppress
from dataclasses import replace

from headrace.server.addresses import Address
from headrace.system import need_linux

_BACKLOG = 1024
# Bytes of the longest path of a Unix socket. Python's error for a longer one has no number.
_LONGEST_PATH = 107


class ListeningSocket:
    """A socket that listens at an address, and the file of a Unix socket.

    Args:
        address: a port of 0 takes a free one.

    Attributes:
        socket: does not block.
        address: with the true port.

    Raises:
        OSError: the address is in use or cannot be bound.
    """

    def __init__(self, address: Address) -> None:
        self._file: tuple[int, int] | None = None
        try:
            self.socket = _unix_socket(address.path) if address.is_unix else _tcp_socket(address)
        except OSError as error:
            raise OSError(error.errno, f"cannot listen at {address}: {error.strerror or error}") from error
        self.socket.setblocking(False)
        self.address = address
        if address.is_unix:
            self._file = _identity(address.path)
        else:
            self.address = replace(address, port=self.socket.getsockname()[1])

    def close(self) -> None:
        """Closes the socket, and removes the file if it is still that of this socket."""
        self.socket.close()
        with suppress(FileNotFoundError):
            if self._file is not None and _identity(self.address.path) == self._file:
                os.unlink(self.address.path)


def _tcp_socket(address: Address) -> socket.socket:
    family, kind, protocol, _, where = socket.getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(where)
        listening.listen(_BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening


def _unix_socket(path: str) -> socket.socket:
    need_linux("unix:// addresses", "Unix sockets with descriptors", "Use a tcp:// address instead")
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise OSError(
            errno.ENAMETOOLONG, f"expected a path of at most {_LONGEST_PATH} bytes; choose a shorter one"
        )
    _remove_stale(path)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        before = os.umask(0o177)
        try:
            listening.bind(path)
        finally:
            os.umask(before)
        listening.listen(_BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening


def _remove_stale(path: str) -> None:
    """Removes the socket file of a server that is dead.

    Raises:
        OSError: the server of this file is alive, or the file is not a socket.
    """
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            raise FileExistsError(17, "the file is there and is not a socket")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trial:
        trial.settimeout(1.0)
        try:
            trial.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
    raise OSError(98, "another server listens there")


def _identity(path: str) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_dev, found.st_ino
