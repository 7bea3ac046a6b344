"""Whether a descriptor can be read."""

from __future__ import annotations

import select

import cython

if cython.compiled:
    from cython.cimports.cpython.exc import PyErr_CheckSignals
    from cython.cimports.headrace.kernels.polling import looks_readable, waits_readable
else:
    from headrace.kernels.kinds import Bool, Float, Int


def is_readable(descriptor: Int) -> Bool:
    """Returns whether there is something to read, or nothing will come any more. It does not wait.

    Compiled, because it is asked at every step of a worker: `select.poll` gives the interpreter lock away and makes a
    list, which takes 0.6 us in a loop of its own, and 2.2 us between frames that drive Python out of the caches.

    Args:
        descriptor: of a socket or pipe.

    >>> import socket
    >>> here, there = socket.socketpair()
    >>> before = is_readable(here.fileno())
    >>> _ = there.send(b"x")
    >>> before, is_readable(here.fileno())
    (False, True)
    >>> here.close(), there.close()
    (None, None)
    """
    if cython.compiled:
        found: Bool = looks_readable(descriptor)
        return found
    else:
        looked = select.poll()
        looked.register(descriptor, select.POLLIN)
        return bool(looked.poll(0))


def wait_until_readable(descriptor: Int, seconds: Float) -> Bool:
    """Returns whether there is something to read, as `is_readable`; waits for it at most `seconds`.

    A signal ends the wait early.

    Raises:
        BaseException: that the handler of a signal raises, such as KeyboardInterrupt.
    """
    if cython.compiled:
        milliseconds: Int = cython.cast(Int, seconds * 1e3)
        if milliseconds < seconds * 1e3:
            milliseconds += 1
        with cython.nogil:
            found: Int = waits_readable(descriptor, milliseconds)
        if found < 0:
            PyErr_CheckSignals()
        return found > 0
    else:
        looked = select.poll()
        looked.register(descriptor, select.POLLIN)
        return bool(looked.poll(seconds * 1000))
