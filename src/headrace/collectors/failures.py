"""How an exception gets from a worker to the collector, and where a collector may be used at all."""

from __future__ import annotations

import traceback

import cloudpickle

from headrace.collectors.channel import Failed
from headrace.forking import HomeProcess


def collector_home() -> HomeProcess:
    """This process, for a collector that is made now."""
    return HomeProcess("this collector", "Make a collector in the process that uses it, after the fork")


def failed(error: BaseException) -> Failed:
    """Returns a worker's report of the exception that ends it; the exception goes along where it can be pickled."""
    text = "".join(traceback.format_exception(error))
    try:
        pickled = cloudpickle.dumps(error)
    except Exception:
        pickled = b""
    return Failed(error=pickled, summary=f"{type(error).__name__}: {error}", text=text)


def rebuilt(failed: Failed) -> BaseException:
    """The exception that ended a worker, of its own type where it can be rebuilt, with the remote traceback."""
    try:
        loaded = cloudpickle.loads(failed.error)
    except Exception:
        loaded = None
    error = loaded if isinstance(loaded, BaseException) else None
    if error is None:
        error = RuntimeError(failed.summary)
    error.add_note(f"in the worker:\n{failed.text}")
    return error
