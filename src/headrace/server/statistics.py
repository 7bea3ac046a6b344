"""The record of a server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.server.queue_core import BatchQueueInfo
from headrace.statistics import ReplayStatistics


@dataclass(frozen=True)
class ConnectionCounts:
    """Counters of the connections of a server.

    Attributes:
        connections, connections_total: whose handshake succeeded: now, and ever.
        rejected_handshakes: connections without the right token, and handshakes that were not finished.
        protocol_errors: connections that ended because their bytes were not of the protocol.
        truncated_frames: connections that ended within a frame.
        bytes_in, bytes_out: bytes of all connections.
        seconds_up: since the start.
        version: of Headrace.
    """

    connections: int
    connections_total: int
    rejected_handshakes: int
    protocol_errors: int
    truncated_frames: int
    bytes_in: int
    bytes_out: int
    seconds_up: float
    version: str


@dataclass(frozen=True)
class ServerStatistics(ConnectionCounts):
    """A server at one instant.

    Attributes:
        connections, connections_total, rejected_handshakes, protocol_errors, truncated_frames, bytes_in, bytes_out,
            seconds_up, version: see `ConnectionCounts`.
        served: the record of each replay and queue, by name.
    """

    served: Mapping[str, ReplayStatistics | BatchQueueInfo]
