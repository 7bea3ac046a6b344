"""The interface of places in which a worker runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from headrace.leases.channel import Channel


class WorkerPlace(Protocol):
    """The process of one worker, on this machine or on another one, and the connection to it.

    `str` names the process in messages.

    Attributes:
        channel: this process's end of the connection.
    """

    channel: Channel

    def begin(self, send_task: Callable[[], None], rows_arrived: Callable[[], None]) -> None:
        """Begins to follow the process.

        Args:
            send_task: called once, as soon as the channel is connected, or when it is clear that it will never be.
            rows_arrived: called whenever `awaits_rows` has become false.
        """

    @property
    def awaits_rows(self) -> bool:
        """Whether rows are on their way beside the channel, which gives no further message until they have arrived."""

    @property
    def is_waiting(self) -> bool:
        """Whether no machine has had the resources for the process yet."""

    @property
    def never_ran(self) -> bool:
        """Whether the process has ended before it began: the machine that was to run it is gone."""

    @property
    def pid(self) -> int:
        """The process id; 0: not known yet."""

    @property
    def exitcode(self) -> int | None:
        """The exit code; negative for a signal, None while the process runs."""

    @property
    def is_alive(self) -> bool:
        """Whether the process still runs."""

    def describe_exit(self, exitcode: int | None) -> str:
        """Describes the end in words."""

    def wait(self, timeout: float) -> int | None:
        """Returns the exit code, or None if the process still runs after `timeout` seconds."""

    def terminate(self) -> None:
        """Asks for the end of the process."""

    def kill(self) -> None:
        """Kills the process if it still runs."""

    def disown(self) -> None:
        """Closes, in a forked child, this process's copy of the connection."""
