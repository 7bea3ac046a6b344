"""Addresses of servers: `tcp://host:port` and `unix:///path`."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

_TCP = re.compile(r"tcp://(?:\[([^\]]+)\]|([^:/\[\]]+)):(\d{1,5})")
_UNIX = "unix://"


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
    return Address(host=found[1] or found[2], port=int(found[3]))
