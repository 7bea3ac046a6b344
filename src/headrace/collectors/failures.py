"""The way of an exception from a worker to its collector, and the process in which a collector may be used."""

from __future__ import annotations

import traceback

import cloudpickle

from headrace.collectors.messages import Failed
from headrace.error_texts import text_of
from headrace.forking import HomeProcess
from headrace.leases.frames import Payload

FAILURE_EXITCODE = 1
"""The exit code of a worker that has reported its exception."""

# Characters of a text that travels in a message.
_LONGEST = 100_000


def collector_home() -> HomeProcess:
    """Returns this process as the home of a new collector."""
    return HomeProcess("this collector", "Make a collector in the process that uses it, after the fork")


def failed(error: BaseException) -> tuple[Failed, bytes]:
    """Returns a worker's report of the exception that ends it, and the exception as payload if it can be pickled."""
    text = "".join(traceback.format_exception(error))
    try:
        pickled = cloudpickle.dumps(error)
    except Exception:
        pickled = b""
    return Failed(summary=text_of(error)[:_LONGEST], text=text[-_LONGEST:]), pickled


def rebuilt(failed: Failed, pickled: Payload) -> BaseException:
    """Returns the exception that ended a worker, with the remote traceback; of its own type where it can be rebuilt."""
    try:
        loaded = cloudpickle.loads(pickled)
    except Exception:
        loaded = None
    error = loaded if isinstance(loaded, BaseException) else None
    if error is None:
        error = RuntimeError(failed.summary)
    error.add_note(f"in the worker:\n{failed.text}")
    return error
