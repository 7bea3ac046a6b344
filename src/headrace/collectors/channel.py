"""Messages between a collector and its worker: length, msgspec bytes, and file descriptors beside them."""

from __future__ import annotations

import array
import os
import select
import socket
import struct
import threading
from contextlib import suppress
from typing import Any

import msgspec

from headrace.errors import Disconnected

_HEADER = struct.Struct("<IB")
_MOST_DESCRIPTORS = 4
_LARGEST = 1 << 30


class Message(msgspec.Struct, tag=True, kw_only=True):
    """The root of what is sent."""


class Start(Message):
    """Collector to worker: what to collect. `payload` is cloudpickle of `worker.Task`."""

    payload: bytes


class Ready(Message):
    """Worker to collector: environments and policy are there.

    Attributes:
        observed: names of the columns that an observation has.
        num_envs, steps: n and T.
        policy: name of the policy's type.
        weights: cloudpickle of the layout of the policy's weights; empty if it has none.
        autoreset: the mode of the environments.
    """

    observed: list[str]
    num_envs: int
    steps: int
    policy: str
    weights: bytes
    autoreset: str


class NotStored(Message):
    """Worker to collector: the policy adds columns that the replay has no place for.

    Attributes:
        names: of these columns.
    """

    names: list[str]


class Slots(Message):
    """Worker to collector: rollouts from here on are in the memory whose descriptor comes along.

    Attributes:
        signature: of one step, as JSON.
        observed: names of the columns that an observation has.
        num_envs, steps: n and T.
        nbytes: of the memory, two slots.
    """

    signature: dict[str, Any]
    observed: list[str]
    num_envs: int
    steps: int
    nbytes: int


class Failed(Message):
    """Worker to collector: an exception ends it.

    Attributes:
        error: cloudpickle of it, or empty.
        summary: its type and text.
        text: its traceback.
    """

    error: bytes
    summary: str
    text: str


class Rollout(Message):
    """Worker to collector: a slot is full.

    Attributes:
        slot: which.
        finals: final observations in it.
        seconds: spent so far in environments, policy and writing.
    """

    slot: int
    finals: int
    seconds: tuple[float, float, float]


class Rows(Message):
    """Worker to collector: these vector steps of a leased page are written.

    Attributes:
        page, steps: the next `steps` steps of the page.
        finals: final rows written beside them, in the order of the leased pages of final rows.
        frames: real transitions.
        episodes: return and length of those that ended.
        stamps: version to frames it acted on.
        page_full: the worker goes on in the next page.
        closes_rollout: T steps are complete.
        cuts: after these steps all copies were reset; so many of them were in an episode, whose final rows are the last
            ones of `finals`.
        seconds: spent so far in environments, policy and writing.
    """

    page: int
    steps: int
    finals: int
    frames: int
    episodes: list[tuple[float, int]]
    stamps: dict[int, int]
    page_full: bool
    closes_rollout: bool
    cuts: int
    seconds: tuple[float, float, float]


class Lease(Message):
    """Collector to worker: a page to fill. `finals` tells that it is for final rows."""

    page: int
    finals: bool


class Proceed(Message):
    """Collector to worker: one more rollout may be begun (its slot is free, or its items are in their tables)."""

    slot: int


class WeightsAt(Message):
    """Collector to worker: weights are published in the memory whose descriptor comes along.

    Attributes:
        layout: cloudpickle of their layout.
    """

    layout: bytes


class Seed(Message):
    """Collector to worker: at the next step reset every copy with these seeds.

    Attributes:
        seeds: one a copy.
        seed: of the process's global generators.
    """

    seeds: list[int]
    seed: int


class Pause(Message):
    """Collector to worker: stop before the next step, flush, and answer `Paused` with the same number."""

    number: int


class Paused(Message):
    """Worker to collector: nothing is stepped until `Resume`, and all that was collected was sent."""

    number: int


class Resume(Message):
    """Collector to worker: go on."""


class Stop(Message):
    """Collector to worker: send what is complete and end."""

    close_env: bool


class Stopped(Message):
    """Worker to collector: the last message."""


AnyMessage = (
    Start
    | Ready
    | NotStored
    | Slots
    | Failed
    | Rollout
    | Rows
    | Lease
    | Proceed
    | WeightsAt
    | Seed
    | Pause
    | Paused
    | Resume
    | Stop
    | Stopped
)


class Channel:
    """One end of a Unix socket between a collector and its worker. Sending is thread-safe; one thread receives.

    >>> one, other = Channel.pair()
    >>> one.send(Proceed(slot=1))
    >>> other.receive()[0]
    Proceed(slot=1)
    >>> one.close(); other.close()
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._sending = threading.Lock()
        self._decoder = msgspec.msgpack.Decoder(AnyMessage)
        self._encoder = msgspec.msgpack.Encoder()

    @classmethod
    def pair(cls) -> tuple[Channel, Channel]:
        """Two connected ends."""
        one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        return cls(one), cls(other)

    def fileno(self) -> int:
        """The descriptor of the socket, to hand down to a child process."""
        return self._socket.fileno()

    def send(self, message: Message, descriptors: tuple[int, ...] = ()) -> None:
        """Send one message.

        Raises:
            Disconnected: the other side is gone.
        """
        body = self._encoder.encode(message)
        data = _HEADER.pack(len(body), len(descriptors)) + body
        with self._sending:
            try:
                if descriptors:
                    sent = socket.send_fds(self._socket, [data], list(descriptors))
                    data = data[sent:]
                self._socket.sendall(data)
            except OSError as error:
                raise Disconnected(f"the other process is gone: {error}") from error

    def has_message(self, timeout: float) -> bool:
        """Whether `receive` need not wait, within `timeout` seconds."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(timeout * 1000))

    def receive(self) -> tuple[Any, list[int]]:
        """The next message and the descriptors that came with it.

        Raises:
            Disconnected: the other side has ended.
        """
        head, descriptors = self._read(_HEADER.size)
        length, count = _HEADER.unpack(head)
        if length > _LARGEST or count > _MOST_DESCRIPTORS:
            raise Disconnected("the other process sent garbage")
        body, more = self._read(length)
        return self._decoder.decode(body), descriptors + more

    def _read(self, length: int) -> tuple[bytes, list[int]]:
        chunks: list[bytes] = []
        descriptors: list[int] = []
        while length:
            try:
                chunk, ancillary, _, _ = self._socket.recvmsg(
                    min(length, 1 << 20), socket.CMSG_SPACE(_MOST_DESCRIPTORS * 4)
                )
            except OSError as error:
                raise Disconnected(f"the other process is gone: {error}") from error
            if not chunk:
                raise Disconnected("the other process has ended")
            descriptors += _descriptors(ancillary)
            chunks.append(chunk)
            length -= len(chunk)
        return b"".join(chunks), descriptors

    def shutdown(self) -> None:
        """End a `receive` of another thread, here and on the other side."""
        with suppress(OSError):  # The other side was first, or it is closed already.
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Give the socket back."""
        self._socket.close()


def _descriptors(ancillary: list[Any]) -> list[int]:
    found = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found.frombytes(data[: len(data) - len(data) % found.itemsize])
    for descriptor in found:
        os.set_inheritable(descriptor, False)
    return list(found)
