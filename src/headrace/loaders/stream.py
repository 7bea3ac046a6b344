"""The stream of batches behind a loader: draws, ready batches and waiting learners.

One draw runs at a time, in the prefetching thread or, without prefetching, in the thread that requests a batch. So the
order of the stream is the order of the draws. The lock is never held while `sample` runs.

Handing a batch from one thread to another takes several times as long as drawing a small one. So a learner that comes
back at once and finds no batch ready draws for itself. The thread waits until the learner is away for longer (`Pace`;
bench/README.md, loaders/prefetched, has the figures).
A turn of drawing may end without a batch. The rate limiter's reason is kept for a learner whose own time is over.
"""

from __future__ import annotations

import contextlib
import copy
import math
import threading
from collections import deque
from collections.abc import Iterator
from typing import Any, TypeAlias

from headrace.clock import Clock
from headrace.errors import Closed, DeadlineExceeded
from headrace.loaders.draws import Draws
from headrace.loaders.pace import PATIENCE, Pace
from headrace.loaders.requests import TURN, Request, Requests
from headrace.replay.conversion.conversion import Conversion
from headrace.waits import Wait, wait_on

Drawn: TypeAlias = tuple[Any, Any]
"""A sample, and its converted batch or None."""

# Returned instead of a batch: none is ready, and the caller may draw one, or has to wait.
_YOUR_TURN, _NOTHING = object(), object()


class Stream:
    """Batches in the order of their draws. Thread-safe, and notified of forks (`forking.Forked`).

    Args:
        draws: of the replay.
        conversion: to the learner's arrays; None delivers samples as they are.
        prefetch: number of batches kept ready; 0 draws in the caller.
        clock: for deadlines.
    """

    def __init__(self, draws: Draws, conversion: Conversion | None, prefetch: int, clock: Clock) -> None:
        self._draws = draws
        self._conversion = conversion
        self._prefetch = prefetch
        self._clock = clock
        self._ready: deque[Drawn] = deque()
        # Whether a learner that draws for itself gets its own draw: without conversion, if no batch is ready before it.
        self._is_direct = conversion is None
        self.delivered = 0
        self._pace = Pace()
        self._began = self._closed = self._ended = False
        self._failure: BaseException | None = None
        self._begin_threads()

    def _begin_threads(self) -> None:
        """Makes all state that belongs to threads; a forked child makes it again."""
        # The condition's lock, which is quicker to take directly.
        self._lock = threading.RLock()
        # A bare one is right: no `with` statement takes it, and `waits` takes the lock again after Ctrl-C.
        self._changed = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None
        # The thread that draws.
        self._drawer: int | None = None
        # Whether the thread is to draw: from the first batch on, and not between a state and the next batch.
        self._asked = False
        # Number of threads that sleep until they are notified.
        self._sleepers = 0
        # Whether the thread leaves drawing to a quick learner: it sleeps and is not notified.
        self._leaves = False
        # No draw starts while this is above 0.
        self._holds = 0
        self._requests = Requests(self._clock)

    # ---- the learner's side ----------------------------------------------------------------------------------------

    def take(self, timeout: float | None) -> Any:
        """Returns the next batch.

        Raises:
            DeadlineExceeded: no batch within `timeout` seconds; nothing was taken.
            StopIteration: the stream or the replay was closed, and every batch drawn before is delivered.
        """
        deadline = math.inf if timeout is None else self._clock.monotonic() + timeout
        refusals = self._requests.refusals
        try:
            with self._lock:
                self._began = self._asked = True
                if self._prefetch:
                    self._begin_prefetching()
                batch = self._look()
                draws = batch is _YOUR_TURN and not self._requests.are_open
                if draws:
                    self._drawer = threading.get_ident()
            if draws:
                # The quick way: no other thread waits, and most draws give a batch.
                batch = self._draw_one(TURN if timeout is None else min(TURN, timeout))
            if batch is _YOUR_TURN or batch is _NOTHING:
                batch = self._wait_for_batch(deadline, refusals, timeout)
            return batch
        except BaseException:
            self._stop_drawing()
            raise

    def _stop_drawing(self) -> None:
        """Gives up this thread's turn of drawing, and wakes the threads that wait: Ctrl-C may have come before that."""
        with self._lock:
            if self._drawer == threading.get_ident():
                self._drawer = None
            self._tell()

    def _look(self) -> Any:
        """Returns a ready batch, or whether the caller may draw one or has to wait.

        Raises:
            StopIteration: the stream is at its end.
        """
        if self._closed:
            raise StopIteration
        if self._ready:
            conversion = self._conversion
            batch = self._ready[0][0] if conversion is None else self._convert_first(conversion)
            # No call after this line can fail.
            self._ready.popleft()
            return self._hand_over(batch)
        if self._failure is not None:
            self._raise_failure(self._failure)
        if self._ended:
            raise StopIteration
        if (
            self._drawer is None
            and not self._holds
            and (self._prefetch == 0 or self._leaves or self._pace.is_quick)
        ):
            return _YOUR_TURN
        return _NOTHING

    def _hand_over(self, batch: Any) -> Any:
        self.delivered += 1
        if self._prefetch:
            self._pace.leave()
        if self._sleepers:
            self._changed.notify_all()
        return batch

    def _hand_over_alone(self, batch: Any) -> Any:
        """Does the same as `_hand_over` without a prefetching thread, and takes the lock only to wake another thread.

        The lock would be 0.15 of the 0.9 us that a batch costs here. Each thread that waits for the end of this draw
        has registered (`_requests`, `_holds`) before it looks for the drawer. So it sees that there is none, or it is
        seen here (test_a_draw_in_the_caller_wakes_a_thread_that_waits_for_its_end).
        """
        self.delivered += 1
        self._drawer = None
        if self._requests.are_open or self._holds:
            with self._lock:
                self._tell()
        return batch

    def _convert_first(self, conversion: Conversion) -> Any:
        """Converts the first batch that is ready. One that cannot be converted is dropped; Ctrl-C drops nothing."""
        sample, converted = self._ready[0]
        try:
            return conversion.deliver(conversion.convert(sample) if converted is None else converted)
        except Exception:
            self._ready.popleft()
            self._tell()
            raise

    def _wait_for_batch(self, deadline: float, refusals: int, timeout: float | None) -> Any:
        request = self._requests.new(timeout, deadline, refusals)
        try:
            with self._lock:
                self._requests.begin(request)
                # Since this call asked, and before it was registered, `pending` may have stopped the thread.
                self._asked = True
                self._tell()
            while True:
                with self._lock:
                    batch = self._wait_for_turn(request)
                if batch is _YOUR_TURN:
                    batch = self._draw_one(self._turn())
                if batch is not _YOUR_TURN and batch is not _NOTHING:
                    return batch
        finally:
            with self._lock:
                self._requests.end(request)

    def _wait_for_turn(self, request: Request) -> Any:
        while True:
            batch = self._look()
            if batch is not _YOUR_TURN and batch is not _NOTHING:
                return batch
            if request.wait.look(self._changed):
                continue
            left = self._requests.time_left(request)
            if batch is _YOUR_TURN:
                self._drawer = threading.get_ident()
                return batch
            with self._asleep():
                wait_on(self._changed, self._clock, left)

    @contextlib.contextmanager
    def _asleep(self) -> Iterator[None]:
        self._sleepers += 1
        try:
            yield
        finally:
            self._sleepers -= 1

    def _tell(self) -> None:
        """Wakes all sleeping threads after a change."""
        if self._sleepers:
            self._changed.notify_all()

    def _begin_prefetching(self) -> None:
        self._pace.come()
        if self._thread is None and not (self._closed or self._ended):
            # Told to end when the program does (`ending`), and a daemon in case that `sample` does not return then.
            thread = threading.Thread(target=self._prefetch_batches, name="headrace-loader", daemon=True)
            thread.start()
            self._thread = thread
        self._tell()

    def _raise_failure(self, failure: BaseException) -> None:
        self._failure = None
        self._tell()
        try:
            raise failure
        finally:
            # Its traceback leads here.
            del failure

    # ---- drawing ---------------------------------------------------------------------------------------------------

    def _prefetch_batches(self) -> None:
        """Runs in the prefetching thread."""
        while self._is_to_draw():
            self._draw_ahead(self._turn())

    def _is_to_draw(self) -> bool:
        """Waits until the thread is to draw, and has it draw; or until there is nothing more to draw."""
        with self._lock:
            while not (self._closed or self._ended):
                # Asked once: a learner that is away a moment later tells the thread nothing.
                self._leaves = self._pace.is_quick
                if self._wants_more() and not self._leaves:
                    self._drawer = threading.get_ident()
                    return True
                self._rest()
            return False

    def _wants_more(self) -> bool:
        return self._asked and self._may_draw() and len(self._ready) < self._prefetch

    def _rest(self) -> None:
        """Sleeps until a change, or while a quick learner draws for itself, until it may be away."""
        if self._leaves:
            self._changed.wait(PATIENCE)
            self._leaves = False
        else:
            with self._asleep():
                self._changed.wait()

    def _may_draw(self) -> bool:
        return self._drawer is None and not self._holds and self._failure is None

    def _draw_one(self, turn: float) -> Any:
        """Draws for up to `turn` seconds in the learner's thread, for which `_drawer` was set, then looks."""
        begin = self._clock.monotonic()
        try:
            sample = self._draws.draw(turn, self._prefetch)
        except Exception as error:
            self._settle_error(error, begin, turn)
        else:
            if self._is_direct and not (self._prefetch or self._closed):
                return self._hand_over_alone(sample)
            with self._lock:
                self._drawer = None
                if self._is_direct and not self._closed:
                    return self._hand_over(sample)
                self._accept((sample, None))
                self._tell()
                return self._look()
        with self._lock:
            return self._look()

    def _draw_ahead(self, turn: float) -> None:
        """Draws for up to `turn` seconds in the thread, and converts; errors are kept for the learner."""
        begin = self._clock.monotonic()
        try:
            sample = self._draws.draw(turn, self._prefetch - len(self._ready) - 1)
        except BaseException as error:
            self._settle_error(error, begin, turn)
            return
        converted = None
        if self._conversion is not None and self.is_next_kept():
            # An error comes again where the learner is to have the batch, in its turn.
            with contextlib.suppress(BaseException):
                converted = self._conversion.convert(sample)
        with self._lock:
            self._drawer = None
            self._accept((sample, converted))
            self._tell()

    def _settle_error(self, error: BaseException, begin: float, turn: float) -> None:
        """Ends a turn of drawing that gave no batch: with the end, a refusal, or an error for the learner."""
        took_long = self._clock.monotonic() - begin >= turn / 2
        with self._lock:
            self._drawer = None
            if isinstance(error, Closed):
                self._ended = True
            elif isinstance(error, DeadlineExceeded) and took_long:
                self._requests.refuse(error)
            else:
                # Also a DeadlineExceeded that came at once: another turn would only bring it again.
                self._failure = error
            self._tell()

    def _turn(self) -> float:
        with self._lock:
            return self._requests.turn()

    def is_next_kept(self) -> bool:
        """Whether this stream delivers the batch that is drawn next."""
        return True

    def _accept(self, drawn: Drawn) -> None:
        self._ready.append(drawn)

    # ---- stopping and going on -------------------------------------------------------------------------------------

    def hold(self, timeout: float | None = None) -> bool:
        """Waits for the draw in progress, and starts no other until `release`. Returns whether it ended in time."""
        deadline = None if timeout is None else self._clock.monotonic() + timeout
        with self._lock:
            self._holds += 1
            wait = Wait(self._clock, None, lambda _: "`sample` of the draw in progress has not returned yet")
            try:
                while self._drawer is not None:
                    left = None if deadline is None else deadline - self._clock.monotonic()
                    if self._drawer == threading.get_ident() or (left is not None and left <= 0):
                        return False
                    if wait.look(self._changed):
                        continue
                    with self._asleep():
                        wait_on(self._changed, self._clock, left)
            except BaseException:
                self._holds -= 1
                raise
            return True

    def release(self) -> None:
        """Ends a `hold`: waiting calls may draw again."""
        with self._lock:
            self._holds -= 1
            self._tell()

    def pending(self) -> tuple[int, list[Any]]:
        """Returns the number of batches delivered, and copies of the samples drawn beyond them. The stream must be
        held.

        No further batch is drawn until the next request.
        """
        drawn = self._draws.stop()
        with self._lock:
            for sample in drawn:
                self._accept((sample, None))
            # A thread that waits for a batch has already requested it.
            self._asked = self._requests.are_open
            # Copied before a learner can receive one of them and write into it.
            return self.delivered, copy.deepcopy([sample for sample, _ in self._ready])

    def begin_with(self, delivered: int, samples: list[Any]) -> None:
        """Continues where another stream stopped.

        Raises:
            RuntimeError: batches of this stream were already requested.
        """
        with self._lock:
            if self._began:
                raise RuntimeError(
                    "load_state_dict: expected a loader whose first batch was not asked for yet"
                )
            self.delivered = delivered
            self._ready = deque((sample, None) for sample in samples)

    def close(self) -> None:
        """Ends the loops and the thread. Ready batches stay for `pending`; their converted copies are dropped."""
        with self._lock:
            self._closed = True
            self._drop_converted()
            self._changed.notify_all()

    def _drop_converted(self) -> None:
        self._ready = deque((sample, None) for sample, _ in self._ready)

    def join(self, timeout: float | None = None) -> None:
        """Waits for the thread, which ends after `close`, when `sample` returns."""
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    # ---- forks -----------------------------------------------------------------------------------------------------

    def before_fork(self) -> None:
        """Does nothing: a child draws from another replay, or not at all."""
        # Rules: loaders LP2, LP3

    def after_fork_in_parent(self) -> None:
        """Does nothing."""

    def after_fork_in_child(self) -> None:
        """Starts again with the ready batches, without the thread. Errors stay with the parent."""
        self._failure = None
        # Copies on a device are of no use here.
        self._drop_converted()
        self._begin_threads()
