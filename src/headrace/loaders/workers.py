"""Processes of a loader: its own process, or a worker that has a copy of it."""

# Rules: loaders LP2, LP3, LP7

from __future__ import annotations

import pickle
import sys
from typing import Any

import cloudpickle

from headrace.forking import ForkFollowers

IN_PROCESS = (
    "this loader's replay is in another process; a copy of it here would be frozen: steps collected later, and "
    "every update of priorities, would be missing. Use num_workers=0: the loader draws ahead in a thread of its own. "
    "For data that does not change while it is read, use Loader(..., snapshot=True) and workers that are forked "
    '(multiprocessing_context="fork")'
)

# Made after the followers of replays, because a stream needs its replay to stop.
STREAMS = ForkFollowers()


def place_among_workers() -> tuple[int, int]:
    """Returns the index of this process among the workers of torch's `DataLoader`, and their number. Imports nothing.

    Outside a worker that is (0, 1).
    """
    data = sys.modules.get("torch.utils.data")
    info = None if data is None else data.get_worker_info()
    return (0, 1) if info is None else (info.id, info.num_workers)


def replay_of_this_process(replay: Any) -> Any:
    """Returns the same replay through a new connection, in a forked child.

    A replay that is reached over a connection can be pickled, and opens a new connection when it is unpickled. A replay
    in a process cannot be pickled, and neither can an object that wraps it.

    Raises:
        RuntimeError: the replay is in the parent.
    """
    if "reopened" in vars(type(replay)):
        return replay.reopened()  # Its certificates cannot be pickled.
    try:
        return cloudpickle.loads(cloudpickle.dumps(replay))
    except Exception as error:
        raise RuntimeError(IN_PROCESS) from error


def check_can_travel(replay: Any, *, snapshot: bool) -> None:
    """Checks that a loader over this replay can be pickled.

    Raises:
        TypeError: the replay is in this process, or the stream is split among workers, which needs a fork.
    """
    if snapshot:
        raise TypeError(f"a Loader with snapshot=True cannot be pickled, only forked: {IN_PROCESS}")
    try:
        pickle.dumps(replay)
    except Exception as error:
        raise TypeError(f"this Loader cannot be pickled: {IN_PROCESS}") from error
