"""The record of a server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.server.queue_info import BatchQueueInfo
from headrace.statistics import ReplayStatistics


@dataclass(frozen=True)
class ConnectionCounts:
    """Counters of a server: its connections and checkpoints.

    Attributes:
        connections, connections_total: whose handshake succeeded: now, and ever.
        rejected_handshakes: connections without the right token, and handshakes that were not finished.
        protocol_errors: connections that ended because their bytes were not of the protocol.
        truncated_frames: connections that ended within a frame.
        bytes_in, bytes_out: bytes of all connections.
        seconds_up: since the start.
        version: of Headrace.
        checkpoints, failed_checkpoints: saves of the replays since the start; one that failed left out some replays.
            None: the server has no directory for checkpoints.
        checkpoint_age: seconds since the newest save that succeeded; None: there was none.
        checkpoint_seconds: that it took.
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
    checkpoints: int | None
    failed_checkpoints: int | None
    checkpoint_age: float | None
    checkpoint_seconds: float | None


@dataclass(frozen=True)
class ServerStatistics(ConnectionCounts):
    """A server at one instant.

    Attributes:
        connections, connections_total, rejected_handshakes, protocol_errors, truncated_frames, bytes_in, bytes_out,
            seconds_up, version, checkpoints, failed_checkpoints, checkpoint_age, checkpoint_seconds: see
            `ConnectionCounts`.
        served: the record of each replay and queue, by name; a closed replay has none.
    """

    served: Mapping[str, ReplayStatistics | BatchQueueInfo]
