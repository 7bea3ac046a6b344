"""One replay whose shards lie on several servers."""

# Rules: collectors CY4

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from functools import partial

from headrace.errors import Disconnected
from headrace.replay.shards.replay import ShardedReplay
from headrace.replay.shards.together import AtOnce
from headrace.server.client.client import Client
from headrace.server.client.remote_replay import RemoteReplay
from headrace.server.compression.choice import CompressionChoice

CALL_SECONDS = 5.0
"""Seconds until a server that does not answer is taken for lost."""


class ShardOpener:
    """Opens a replay of a server, again and again; see `ShardedReplay`.

    Args:
        connect: returns a client of the server at an address.
        address: returns the address now.
        name: of the replay.
    """

    def __init__(self, connect: Callable[[str], Client], address: Callable[[], str], name: str) -> None:
        self._connect = connect
        self._address = address
        self._name = name
        self._client: Client | None = None
        self._connected_to = ""

    def __call__(self) -> RemoteReplay:
        """Returns the replay.

        Raises:
            Disconnected, Closed, DeadlineExceeded: the server cannot be reached.
        """
        address = self._address()
        if self._client is not None and address != self._connected_to:
            self.close()
        if self._client is None:
            self._client, self._connected_to = self._connect(address), address
        # A client connects again by itself, and its writers send what was not acknowledged.
        return self._client.replay(self._name)

    def client(self) -> Client:
        """Returns the client of the server.

        Raises:
            Disconnected: there is no connection.
        """
        if self._client is None:
            raise Disconnected("the server of this shard cannot be reached")
        return self._client

    def close(self) -> None:
        """Ends the connection."""
        if self._client is not None:
            self._client._session.abandon()
            self._client = None


class ShardsOfServers(ShardedReplay):
    """Shards on servers: closing them ends the connections, and leaves the replays of the servers open.

    Args:
        openers: of the shards.
        seed, first_lane: as `ShardedReplay`.
    """

    def __init__(
        self, openers: Sequence[ShardOpener], *, seed: int | None = None, first_lane: int = 0
    ) -> None:
        self._openers = openers
        at_once = AtOnce(max(1, len(openers)))
        try:
            super().__init__(openers, seed=seed, first_lane=first_lane, together=at_once)
        except BaseException:
            self._disconnect()
            at_once.close()
            raise

    def close(self) -> None:
        """Ends every wait with `Closed`, and the connections. The replays of the servers stay open."""
        super().close()
        self._disconnect()

    def _disconnect(self) -> None:
        for opener in self._openers:
            opener.close()


def shards(
    addresses: Sequence[str],
    name: str,
    *,
    token: str | bytes | None = None,
    tls: ssl.SSLContext | None = None,
    timeout: float | None = CALL_SECONDS,
    compression: CompressionChoice = None,
    seed: int | None = None,
    first_lane: int = 0,
) -> ShardedReplay:
    """Returns one replay whose shards are replays of several servers, with the interface of `Replay`.

    Each lane of a writer belongs to one server: lane l of all lanes to server `l % len(addresses)`. Batches have the
    distribution of one replay with the items of all servers. A server that cannot be reached is left out, counted in
    `statistics().shards`, and tried again.

    Args:
        addresses: of the servers, always in the same order, since keys depend on it.
        name: of the replay on every server; all have the same signature and tables.
        token, tls: as `hr.Client` takes them, for all servers.
        timeout: seconds until a server that does not answer is taken for lost.
        compression: as `hr.Client` takes it, for all servers.
        seed: of the choice of servers; None takes one from the system.
        first_lane: number of this process's first lane. Where many processes write few lanes each, give each its own
            number, such as its rank, so that they fill all servers.

    Raises:
        Disconnected: no server can be reached.
        SpecError, ValueError: the replays have different signatures or tables.
        ValueError: an address comes twice.
        TypeError: `addresses` is not a list.

    >>> import headrace as hr
    >>> table = hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=100)
    >>> replays = [hr.Replay(hr.Signature.like({"x": 0}), [table]) for _ in range(2)]
    >>> servers = [hr.Server({"r": replay}).start() for replay in replays]
    >>> with hr.server.shards([server.address for server in servers], "r") as replay:
    ...     with replay.writer(lanes=4, items=[hr.ItemRule("t", 1)]) as writer:
    ...         writer.append({"x": [0, 1, 2, 3]})
    ...     replay.sample("t", 8)["x"].shape, [len(each.table("t")) for each in replays]
    ((8,), [2, 2])
    >>> for server, replay in zip(servers, replays):
    ...     server.stop()
    ...     replay.close()
    """
    if isinstance(addresses, str) or not isinstance(addresses, Sequence):
        raise TypeError(f"addresses: expected a list of addresses, got {addresses!r}")
    twice = [address for place, address in enumerate(addresses) if address in addresses[:place]]
    if twice:
        raise ValueError(
            f"addresses: expected different servers, got {twice[0]} twice; its items would be drawn twice as often"
        )
    connect = partial(Client, token=token, tls=tls, timeout=timeout, compression=compression)
    openers = [ShardOpener(connect, partial(str, address), name) for address in addresses]
    return ShardsOfServers(openers, seed=seed, first_lane=first_lane)
