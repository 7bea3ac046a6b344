"""Addresses of servers: `tcp://host:port` and `unix:///path`."""

from __future__ import annotations

import ipaddress
import re
import socket
from dataclasses import dataclass

_TCP = re.compile(r"tcp://(?:\[([^\]]+)\]|([^:/\[\]]+)):(\d{1,5})")
_UNIX = "unix://"
_NAME = re.compile(rb"[\w.-]+", re.ASCII)


@dataclass(frozen=True)
class Address:
    """The address of a server.

    Attributes:
        host, port: of a TCP address; "" and 0 for a Unix socket.
        path: of a Unix socket; "" for TCP.

    >>> parse_address("tcp://[::1]:9000").host, str(parse_address("unix:///run/replay.sock"))
    ('::1', 'unix:///run/replay.sock')
    """

    host: str = ""
    port: int = 0
    path: str = ""

    @property
    def is_unix(self) -> bool:
        """Whether it is a Unix socket, which only processes of this machine reach."""
        return bool(self.path)

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches it."""
        if self.is_unix or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        if self.is_unix:
            return f"{_UNIX}{self.path}"
        return f"tcp://[{self.host}]:{self.port}" if ":" in self.host else f"tcp://{self.host}:{self.port}"


def parse_address(address: str) -> Address:
    """Returns the parts of an address.

    Raises:
        TypeError: not a string.
        ValueError: not the address of a server.
    """
    if not isinstance(address, str):
        raise TypeError(f"address: expected a string such as 'tcp://127.0.0.1:9000', got {address!r}")
    if address.startswith(_UNIX) and len(address) > len(_UNIX):
        return Address(path=address[len(_UNIX) :])
    found = _TCP.fullmatch(address)
    if found is None or int(found[3]) > 65535:
        raise ValueError(f"address: expected 'tcp://host:port' or 'unix:///path', got {address!r}")
    host = found[1] or found[2]
    if not can_be_host(host):
        raise ValueError(
            f"address: expected the name or IP address of a machine, got {host!r} in {address!r}"
        )
    return Address(host=host, port=int(found[3]))


def can_be_host(host: str) -> bool:
    """Returns whether a machine can have this name or IP address. The name is not looked up.

    >>> [can_be_host(each) for each in ("learner-0.example", "10.0.0.7", "::1", "10.0.0.777", "a..b", "two words")]
    [True, True, True, False, False, False]
    """
    try:
        if ":" in host:
            ipaddress.IPv6Address(host)
            return True
        encoded = host.encode("idna")  # As `socket.getaddrinfo` does.
        if host.rpartition(".")[2].isdecimal():
            socket.inet_aton(host)
    except (ValueError, OSError):
        return False
    return _NAME.fullmatch(encoded) is not None
