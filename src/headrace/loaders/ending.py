"""The end of the program: prefetching threads end before the interpreter does, and do not hold it up."""

from __future__ import annotations

import atexit
import time
import weakref

from headrace.loaders.stream import Stream

# Seconds for all threads together; one that is still inside somebody's `sample` then is left behind, as a daemon.
_LONGEST_FAREWELL = 1.0

_streams: weakref.WeakSet[Stream] = weakref.WeakSet()


def end_at_exit(stream: Stream) -> None:
    """Close this stream when the program ends, if it is still there."""
    _streams.add(stream)


@atexit.register
def _end_all() -> None:
    streams = list(_streams)
    for stream in streams:
        stream.close()
    begin = time.monotonic()
    for stream in streams:
        stream.join(max(0.0, begin + _LONGEST_FAREWELL - time.monotonic()))
