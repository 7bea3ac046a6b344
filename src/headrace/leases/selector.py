"""One thread of this process listens to all peers: it starts with the first and ends with the last.

It never waits for one peer. Data that a peer does not read at once are kept in a bounded buffer. A page that is not
free is asked for again 20 times a second, while other peers are served. A peer that reads no answers is not read
either (`Peer.is_full`).
"""

from __future__ import annotations

import errno
import heapq
import logging
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from itertools import count
from typing import NamedTuple, Protocol, TypeVar

import cython

from headrace.errors import Disconnected
from headrace.forking import ForkFollowers
from headrace.kernels.quiet_condition import QuietCondition, WaitersLock
from headrace.leases.channel import Channel
from headrace.leases.frames import Frame, Payload
from headrace.leases.messages import Message
from headrace.leases.poller import READ, WRITE, Poller

if cython.compiled:
    from cython.cimports.headrace.kernels.monotonic import monotonic
else:
    from headrace.kernels.kinds import Float, Int
    from headrace.kernels.monotonic import monotonic

_LOOK_SECONDS = 0.05
_REST_SECONDS = 0.5
# Of messages that a peer does not read.
_MOST_UNSENT_NBYTES = 1 << 26
_LEAVING_SECONDS = 5.0
# This process or the system has no descriptor or memory left for a connection.
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_PAUSE_SECONDS = 0.5
_LOGGER = logging.getLogger(__name__)
_FOLLOWERS = ForkFollowers()
_READ, _WRITE = READ, WRITE
_Returned = TypeVar("_Returned")


class Peer(Protocol):
    """The owner of a channel, as the thread that listens calls it.

    Attributes:
        channel: to the peer.
    """

    channel: Channel

    def take(self, frame: Frame) -> None:
        """Processes a message, whose descriptors are closed afterwards. An exception ends the peer."""

    @property
    def waits(self) -> bool:
        """Whether to call `look` in 0.05 s instead of 0.5 s."""

    @property
    def is_full(self) -> bool:
        """Whether to take no further message for now; asked after each one, and later until it is False."""

    @property
    def is_at_work(self) -> bool:
        """Whether a message is still worked on while the peer is full: it is not ended before, even if it has gone."""

    def look(self) -> None:
        """Does work that no message asks for. An exception ends the peer."""

    def end(self, error: BaseException) -> None:
        """Ends the peer, which is gone (`Disconnected`) or raised an error. No further call follows."""


class _Listener(NamedTuple):
    """A listening socket, and the function that takes each connection."""

    listening: socket.socket
    accepted: Callable[[socket.socket], None]


class PeerSelector:
    """Listens to peers in one thread. All calls are thread-safe.

    >>> PeerSelector().peers
    0
    """

    def __init__(self) -> None:
        self._begin()
        _FOLLOWERS.add(self)

    def _begin(self) -> None:
        # A finalizer, which may run anywhere, removes a peer.
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        # Of the thread, as the system knows it.
        self._number = 0
        self._peers: set[Peer] = set()
        self._wanted: deque[Callable[[], None]] = deque()
        self._waiting: set[Peer] = set()
        self._full: set[Peer] = set()
        self._listeners: dict[socket.socket, _Listener] = {}
        # Calls that are due at a time, the earliest first; the number keeps those of one time in order.
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._timer_numbers = count()
        # Set when the peers that they are of are forgotten, and what was the last one's is given back.
        self._left: deque[threading.Event] = deque()
        # Conditions whose waiting threads are woken when the thread has nothing else to do.
        self._changed: set[QuietCondition] = set()
        self._poller: Poller | None = None
        self._wake_read = self._wake_write = -1

    @property
    def peers(self) -> int:
        """Number of peers."""
        return len(self._peers)

    @property
    def is_current_thread(self) -> bool:
        """Whether the caller is the thread that listens."""
        return self._number == threading.get_ident()

    def add(self, peer: Peer) -> None:
        """Listens to a peer from here on, and sends what of its messages is unsent."""
        with self._lock:
            if self._thread is None:
                self._start()
            self._peers.add(peer)
            self.call_soon(lambda: self._listen_for(peer))

    def listen(self, listening: socket.socket, accepted: Callable[[socket.socket], None]) -> None:
        """Accepts connections from here on, until `stop_listening`.

        Args:
            listening: a socket that listens and does not block.
            accepted: called in the thread with each connection, which it owns. It must not raise.
        """
        listener = _Listener(listening, accepted)
        with self._lock:
            if self._thread is None:
                self._start()
            self._listeners[listening] = listener
            self.call_soon(lambda: self._register_listener(listener))

    def stop_listening(self, listening: socket.socket) -> None:
        """Accepts no further connection; on return the socket may be closed."""
        left = threading.Event()
        with self._lock:
            thread = self._thread
            if self._listeners.pop(listening, None) is None or thread is None:
                return
            self.call_soon(partial(self._unlisten, listening, left))
        if thread is not threading.current_thread():
            left.wait(_LEAVING_SECONDS)

    def call_soon(self, call: Callable[[], None]) -> None:
        """Makes a call in the thread, soon; it must not raise. There must be a peer or a listener.

        It takes no lock, so that a caller may hold any.
        """
        self._wanted.append(call)
        if self.is_current_thread:
            return  # It is awake, and makes the call when the peer that it serves is done.
        with suppress(BlockingIOError):  # It is awake.
            os.write(self._wake_write, b"x")

    def submit(self, call: Callable[[], _Returned]) -> Future[_Returned]:
        """Makes a call in the thread, soon; in this one if that thread does not run, because there is no peer.

        So Ctrl-C, which comes to the main thread alone, ends no call in the middle: the caller has asked for all of it,
        or for nothing. The call must not wait.

        Returns:
            A future of the call's result, or of its exception.
        """
        made: Future[_Returned] = Future()

        def make() -> None:
            try:
                made.set_result(call())
            except BaseException as error:
                made.set_exception(error)

        with self._lock:
            if self._thread is not None and not self.is_current_thread:
                self.call_soon(make)
                return made
        make()
        return made

    def call_at(self, seconds: float, call: Callable[[], None]) -> None:
        """Makes a call in the thread when `time.monotonic()` has come to `seconds`; it must not raise."""
        self.call_soon(lambda: heapq.heappush(self._timers, (seconds, next(self._timer_numbers), call)))

    def notify_later(self, condition: QuietCondition) -> None:
        """Notifies all threads that wait for a condition when the thread has nothing else to do; called in the thread.

        A thread that is woken while this one goes on waits for the interpreter lock, again and again. And this one
        takes that lock in a moment in which the other gives it up: if both share a processor with a third thread that
        is busy, the system may run that one for some milliseconds before the lock is given back.
        """
        self._changed.add(condition)

    def _start(self) -> None:
        self._poller = Poller()
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._poller.watch(self._wake_read, READ, None)
        self._thread = threading.Thread(target=self._listen, daemon=True, name="headrace-peers")
        self._thread.start()

    def remove(self, peer: Peer) -> None:
        """Stops listening to a peer; on return none of its methods is running in the thread that listens."""
        left = threading.Event()
        with self._lock:
            thread = self._thread
            if peer not in self._peers or thread is None:
                return
            if thread is threading.current_thread():
                self._forget(peer)
                return
            self.call_soon(partial(self._leave, peer, left))
        left.wait(_LEAVING_SECONDS)

    def look(self, peer: Peer) -> None:
        """Asks for a call of `Peer.look` soon."""
        with self._lock:
            if peer in self._peers:
                self.call_soon(lambda: self._look_at({peer}))

    def send(
        self,
        peer: Peer,
        *messages: Message,
        payload: Payload = b"",
        parts: Sequence[memoryview] = (),
        descriptors: tuple[int, ...] = (),
        most: int | None = None,
    ) -> None:
        """Sends messages to a peer in one piece, without waiting for it; see `Channel.send_soon`.

        Args:
            peer: see `add`.
            messages, payload, parts, descriptors: see `Channel.send_soon`.
            most: number of unsent bytes beyond which the connection ends; None: 64 MiB.

        Raises:
            Disconnected: the peer is gone, or does not read.
        """
        most = _MOST_UNSENT_NBYTES if most is None else most
        if not peer.channel.send_soon(
            *messages, payload=payload, parts=parts, descriptors=descriptors, most=most
        ):
            with self._lock:
                if peer in self._peers:
                    self.call_soon(lambda: self._listen_for(peer))

    def _leave(self, peer: Peer, left: threading.Event) -> None:
        self._forget(peer)
        self._left.append(left)

    # ---- the thread ------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        self._number = threading.get_ident()
        now = monotonic()
        next_rest = now + _REST_SECONDS
        while not self._has_ended():
            next_look = now + _LOOK_SECONDS if self._waiting else next_rest
            self._serve_ready(self._seconds_until(min(next_look, next_rest), now))
            now = monotonic()
            if self._timers:
                self._make_timed_calls(now)
            if now >= next_rest:
                next_rest = now + _REST_SECONDS
                self._look_at(self._peers)
            elif now >= next_look:
                self._look_at(self._waiting)
        for sleeper in self._take_sleepers():
            sleeper.release()

    def _take_sleepers(self) -> list[WaitersLock]:
        """Returns the locks of the threads that `notify_later` is to wake."""
        sleepers: list[WaitersLock] = []
        while self._changed:
            sleepers += self._changed.pop().take_sleepers()
        return sleepers

    def _seconds_until(self, then: Float, now: Float) -> Float:
        """Returns the seconds until a time, or until the first timer."""
        if self._timers:
            first: Float = self._timers[0][0]
            then = min(then, first)
        return max(0.0, then - now)

    def _make_timed_calls(self, now: Float) -> None:
        while self._timers and self._timers[0][0] <= now:
            heapq.heappop(self._timers)[2]()

    def _has_ended(self) -> bool:
        """Makes the calls that other threads asked for; returns whether no peer is left and everything is closed."""
        self._make_calls()
        if self._peers and not self._left:
            return False
        with self._lock:
            has_ended = not (self._peers or self._listeners or self._wanted)
            if has_ended:
                self._thread = None
                self._number = 0
                self._close()
        while self._left:
            self._left.popleft().set()
        return has_ended

    def _make_calls(self) -> None:
        while self._wanted:
            self._wanted.popleft()()

    def _serve_ready(self, timeout: Float) -> None:
        assert self._poller is not None
        for peer, events in self._poller.wait(timeout, self._take_sleepers()):
            if peer is None:
                os.read(self._wake_read, 4096)
            elif isinstance(peer, _Listener):
                self._accept(peer)
            elif peer in self._peers:
                self._serve(peer, events)
                self._make_calls()

    def _accept(self, listener: _Listener) -> None:
        if listener.listening not in self._listeners:
            return
        try:
            connection, _ = listener.listening.accept()
        except OSError as error:
            if error.errno in _EXHAUSTED:
                self._pause(listener, error)
            return  # Or the peer has gone already.
        listener.accepted(connection)

    def _pause(self, listener: _Listener, error: OSError) -> None:
        """Accepts nothing for a while: the waiting connection would be offered again at once, and without end."""
        assert self._poller is not None
        _LOGGER.warning("no connection is accepted for %g s: %s", _PAUSE_SECONDS, error)
        self._poller.watch(listener.listening.fileno(), 0, None)
        self.call_at(time.monotonic() + _PAUSE_SECONDS, lambda: self._register_listener(listener))

    def _serve(self, peer: Peer, events: Int) -> None:
        channel: Channel = peer.channel
        try:
            if events & _WRITE:
                channel.send_rest()
            if self._full and peer in self._full:
                self._resume(peer)
            if events & _READ and not (self._full and peer in self._full):
                channel.read_ready()
                self._take_all(peer)
            if (events & _WRITE or channel.unsent) and peer in self._peers:
                self._listen_for(peer)
            if peer.waits:
                self._waiting.add(peer)
        except BaseException as error:
            self._end(peer, error)

    def _resume(self, peer: Peer) -> None:
        """Takes messages again from a peer that was full."""
        if peer.is_full:
            # Its socket is not read, which would tell.
            if not peer.is_at_work and peer.channel.has_hung_up:
                raise Disconnected("the peer has ended")
            return
        self._full.discard(peer)
        self._take_all(peer)
        self._listen_for(peer)

    def _take_all(self, peer: Peer) -> None:
        """Takes the messages that have arrived, until the peer is full."""
        if self._full and peer in self._full:
            return
        channel: Channel = peer.channel
        # Small answers to messages that came together are sent together.
        channel.hold()
        try:
            self._take_some(peer, channel)
        except BaseException:
            with suppress(Disconnected):
                channel.send_held()
            raise
        channel.send_held()

    def _take_some(self, peer: Peer, channel: Channel) -> None:
        while (frame := channel.next_frame()) is not None:
            try:
                peer.take(frame)
            finally:
                if frame.descriptors:
                    frame.close_descriptors()
            if peer.is_full:
                self._full.add(peer)
                self._listen_for(peer)
                return

    def _look_at(self, peers: set[Peer]) -> None:
        for peer in tuple(peers):
            try:
                peer.look()
                if peer in self._full:
                    self._resume(peer)
            except BaseException as error:
                self._end(peer, error)
            if peer in self._peers and peer.waits:
                self._waiting.add(peer)
            else:
                self._waiting.discard(peer)

    def _end(self, peer: Peer, error: BaseException) -> None:
        """Ends a peer with the error that one of its methods raised."""
        self._forget(peer)
        peer.end(error)

    def _register_listener(self, listener: _Listener) -> None:
        assert self._poller is not None
        if listener.listening in self._listeners:
            self._poller.watch(listener.listening.fileno(), READ, listener)

    def _unlisten(self, listening: socket.socket, left: threading.Event) -> None:
        assert self._poller is not None
        self._poller.watch(listening.fileno(), 0, None)
        self._left.append(left)

    def _listen_for(self, peer: Peer) -> None:
        """Listens for messages unless the peer is full, and for the chance to send what is unsent."""
        assert self._poller is not None
        events = 0 if peer in self._full else READ
        if peer.channel.unsent:
            events |= WRITE
        with suppress(ValueError):  # It has ended meanwhile.
            if peer in self._peers:
                self._poller.watch(peer.channel.fileno(), events, peer)

    def _forget(self, peer: Peer) -> None:
        self._peers.discard(peer)
        self._waiting.discard(peer)
        self._full.discard(peer)
        if self._poller is not None:
            self._poller.watch(peer.channel.fileno(), 0, None)

    def _close(self) -> None:
        if self._poller is not None:
            self._poller.close()
            os.close(self._wake_read)
            os.close(self._wake_write)
        self._poller = None

    # ---- forks -----------------------------------------------------------------------------------------------------

    def before_fork(self) -> None:
        """Keeps the lock until `os.fork` has returned."""
        self._lock.acquire()

    def after_fork_in_parent(self) -> None:
        """Releases the lock."""
        self._lock.release()

    def after_fork_in_child(self) -> None:
        """Closes the inherited descriptors, and begins without peers: those belong to the parent."""
        self._close()
        self._begin()


PEERS = PeerSelector()
