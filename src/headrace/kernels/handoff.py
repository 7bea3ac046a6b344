"""Hands the interpreter lock from a thread that appends to a thread that samples.

An append takes about a microsecond of Python. A thread that copies a batch meanwhile gives the interpreter lock up, and
wants it again at the end. CPython lets it wait for 5 ms before it makes the other thread give the lock up. To give the
lock up for a moment in each append does not help: the waiting thread is woken, and finds the lock taken again.

So the thread that wants the lock says so, and the next append gives the lock up until the other thread had its turn.
A kernel that copies calls `leave`, copies, and calls `ask`, all without the interpreter lock; then, with the lock,
`take`.
"""

from __future__ import annotations

import cython

from headrace.system import register_at_fork

if cython.compiled:
    from cython.cimports.headrace.kernels.atomics import add, let_others_run, load, nanoseconds, store
else:
    from headrace.kernels.kinds import Int

    # Nanoseconds that `offer` waits at most: until the lock is taken, which a thread that sleeps does within 50 us, and
    # until the thread has left it again for its next copy.
    TIME_TO_TAKE, TIME_TO_LEAVE = 200_000, 100_000

# How many threads want the lock, how often one of them has got it, and whether that one has not left it since.
asking = 0
_taken = 0
_inside = 0


def leave() -> None:
    """Notes that this thread does without the interpreter lock for a while."""
    if cython.compiled:
        store(cython.address(_inside), 0)


def ask() -> None:
    """Notes that this thread wants the interpreter lock, and is about to wait for it."""
    if cython.compiled:
        add(cython.address(asking), 1)


def take() -> None:
    """Notes that this thread, after `ask`, has the interpreter lock."""
    if cython.compiled:
        store(cython.address(_inside), 1)
        add(cython.address(_taken), 1)
        add(cython.address(asking), -1)


def offer() -> None:
    """Waits, without the interpreter lock, until a thread that asks had its turn; for 0.3 ms at most.

    A thread that the system does not run in that time is offered the lock again by the next append. Where more threads
    want to run than there are processors, each of the turns that others get may take milliseconds: so the clock ends
    the wait.
    """
    if cython.compiled:
        before: Int = load(cython.address(_taken))
        end: Int = nanoseconds() + TIME_TO_TAKE
        # The thread may have taken the lock since this one saw it ask: then no other is waited for.
        while (
            load(cython.address(asking)) > 0
            and load(cython.address(_taken)) == before
            and nanoseconds() < end
        ):
            let_others_run()
        end = nanoseconds() + TIME_TO_LEAVE
        while load(cython.address(_inside)) != 0 and nanoseconds() < end:
            let_others_run()


def count_asking() -> int:
    """Returns the number of threads that want the interpreter lock."""
    return asking


def _forget() -> None:
    """In a forked child the threads that asked are gone."""
    global asking, _inside
    asking = _inside = 0


register_at_fork(after_in_child=_forget)
