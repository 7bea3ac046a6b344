"""Clean-up at exit: prefetching threads end before the interpreter does, and do not delay it."""

from __future__ import annotations

import atexit
import time
import weakref

from headrace.loaders.stream import Stream

# Seconds for all threads together; a thread still inside a user's `sample` after that is abandoned, as a daemon.
_LONGEST_FAREWELL = 1.0

_streams: weakref.WeakSet[Stream] = weakref.WeakSet()


def end_at_exit(stream: Stream) -> None:
    """Closes the stream when the program ends, unless it was garbage collected before."""
    _streams.add(stream)


@atexit.register
def _end_all() -> None:
    streams = list(_streams)
    for stream in streams:
        stream.close()
    begin = time.monotonic()
    for stream in streams:
        stream.join(max(0.0, begin + _LONGEST_FAREWELL - time.monotonic()))
