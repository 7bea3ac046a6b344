"""Sending a file descriptor of anonymous memory to another process."""

from __future__ import annotations

import os
from collections.abc import Callable
from multiprocessing import context, reduction
from typing import Any


def portable(descriptor: int) -> tuple[Callable[..., int], tuple[Any, ...]]:
    """Returns a function and picklable arguments that give a descriptor of the same memory in another process.

    A process that multiprocessing is just starting inherits the descriptor. Any other process of this machine opens it
    through this process, which must then still be alive and belong to the same user.
    """
    if context.get_spawning_popen() is not None:
        return _inherited, (reduction.DupFd(descriptor),)
    status = os.fstat(descriptor)
    return _through_proc, (os.getpid(), descriptor, (status.st_dev, status.st_ino))


def _inherited(handle: Any) -> int:
    return int(handle.detach())


def _through_proc(pid: int, descriptor: int, identity: tuple[int, int]) -> int:
    path = f"/proc/{pid}/fd/{descriptor}"
    try:
        opened = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise OSError(
            f"expected to open the memory of process {pid}: {error}; send the receiver while that process lives, as an "
            f"argument of a multiprocessing process, or send its descriptor and use SharedMemoryReceiver.from_fd"
        ) from error
    status = os.fstat(opened)
    if (status.st_dev, status.st_ino) != identity:
        os.close(opened)
        raise OSError(f"process {pid} has closed the memory that this receiver reads")
    return opened
