"""Where a loader finds itself: in its own process, or in a worker that has a copy of it."""

# Rules: loaders LP2, LP3, LP7

from __future__ import annotations

import pickle
import sys
from typing import Any

import cloudpickle

from headrace.forking import ForkFollowers

IN_PROCESS = (
    "this loader's replay lives in another process; a copy of it here would be frozen: what is collected later, and "
    "every update of priorities, would be missing. Use num_workers=0: the loader draws ahead in a thread of its own. "
    "For data that does not change while it is read, use Loader(..., snapshot=True) and workers that are forked "
    '(multiprocessing_context="fork")'
)

# Made after that of replays, which a stream needs to come to rest.
STREAMS = ForkFollowers()


def place_among_workers() -> tuple[int, int]:
    """Returns the index of this process among the workers of torch's `DataLoader`, and their number. Imports nothing.

    Outside a worker that is (0, 1).
    """
    data = sys.modules.get("torch.utils.data")
    info = None if data is None else data.get_worker_info()
    return (0, 1) if info is None else (info.id, info.num_workers)


def replay_of_this_process(replay: Any) -> Any:
    """In a forked child: the same replay through a connection of its own.

    A replay that is reached over a connection can be pickled, and opens a new one when it is unpickled; one that lives
    in a process cannot be pickled, and nor can what wraps it.

    Raises:
        RuntimeError: the replay lives in the parent.
    """
    try:
        return cloudpickle.loads(cloudpickle.dumps(replay))
    except Exception as error:
        raise RuntimeError(IN_PROCESS) from error


def check_can_travel(replay: Any, *, snapshot: bool) -> None:
    """Whether a loader over this replay can be pickled.

    Raises:
        TypeError: it lives in this process, or is to be dealt out, which needs a fork.
    """
    if snapshot:
        raise TypeError(f"a Loader with snapshot=True cannot be pickled, only forked: {IN_PROCESS}")
    try:
        pickle.dumps(replay)
    except Exception as error:
        raise TypeError(f"this Loader cannot be pickled: {IN_PROCESS}") from error
