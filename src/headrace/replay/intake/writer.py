"""A writer as users see it."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from headrace.replay.intake.writer_like import WriterLike, check_version


class Writer:
    """Appends the steps of one or more lanes and makes items of them. Made by `Replay.writer`; one thread uses it.

    A step is visible once an item refers to it. `append` and `create_item` return when the item is queued; it is in
    its table as soon as the rate limiter lets it in, and `flush` waits for that. A writer is a context manager: leaving
    it flushes and closes.

    >>> import headrace as hr, numpy as np
    >>> table = hr.Table("t", sampler=hr.selectors.Fifo(), remover=hr.selectors.Fifo(), max_size=10)
    >>> with hr.Replay(hr.Signature.like({"reward": np.float32(0)}), [table]) as replay:
    ...     with replay.writer(items=[hr.ItemRule("t", length=1)]) as writer:
    ...         writer.append({"reward": 0.5})
    ...     len(replay.table("t"))
    1
    """

    def __init__(self, rows: WriterLike) -> None:
        self._rows = rows
        # The method itself: a call between would cost 3 % of a step.
        self.append = rows.append  # type: ignore[method-assign]

    def append(self, step: Any) -> None:
        """Stores one step of every lane, and makes the items whose windows it completes; they are queued on return.

        Args:
            step: a tree of the signature, or a dict of its columns: one step for one lane; every leaf with a leading
                axis for several.

        Raises:
            SpecError: the step does not fit; nothing is stored, and the writer can be used again.
            StoreFull: no free page; nothing is stored, and the writer can be used again when items leave. Or no memory
                for the step's items: then the message says that the step was stored.
            DeadlineExceeded: `max_pending` items wait already and none went in within the writer's timeout.
            Closed: the writer or the replay is closed.
        """
        self._rows.append(step)

    def end_episode(self, final: Any = None, lane: int | None = None) -> None:
        """Ends the episode of a lane; its next step begins another.

        Args:
            final: the last observation: a partial step such as `{"observation": ...}`, stored as the final row with
                zeros in the other columns; or the observation alone. None: it is not known.
            lane: its number; None ends the episodes of all lanes (leaves have a leading axis if there are several).

        Raises:
            ValueError: no such lane, or a lane without a step since its last end.
            SpecError: `final` does not fit; nothing changed.
        """
        self._rows.end_episode(final, lane)

    def create_item(self, table: str, length: int, priority: float | None = None, lane: int = 0) -> int:
        """Makes an item of the last `length` rows of a lane; it is queued on return.

        Returns:
            The key. The item is in its table as soon as the rate limiter lets it in; `flush` waits for that.

        Raises:
            ValueError: fewer rows in reach, a window across the end of an episode, or a bad priority; nothing is made.
            DeadlineExceeded: `max_pending` items wait already and none went in within the writer's timeout.
        """
        return self._rows.create_item(table, length, priority, lane)

    @property
    def lanes(self) -> int:
        """Number of lanes."""
        return self._rows.lanes

    @property
    def policy_version(self) -> int:
        """The version stored with each step from now on; it can be set, to a number from 0 to 2**31 - 1.

        Raises:
            TypeError, ValueError: another one.
        """
        return self._rows.policy_version

    @policy_version.setter
    def policy_version(self, version: int) -> None:
        check_version(version)
        self._rows.policy_version = version

    @property
    def pending(self) -> int:
        """Number of items that wait for a rate limiter."""
        return self._rows.pending

    def flush(self, timeout: float | None = None, durable: bool = False) -> None:
        """Returns when every item is applied: in its table. A replay with a `path` keeps it when the process is killed.

        Args:
            timeout: in seconds; None waits for ever.
            durable: wait also until all applied changes are on the disk, where they survive the machine. A replay in
                memory raises ValueError.

        Raises:
            DeadlineExceeded: the message says how many items wait for which table; they stay pending.
            Closed: the replay is closed; the message says how many items were refused.
            RuntimeError: a selector or rate limiter of your own failed on items of this writer; they stay pending.
        """
        self._rows.flush(timeout, durable)

    def close(self, timeout: float | None = None) -> None:
        """Flushes, then releases the rows that only this writer holds. A second call does nothing.

        Raises:
            DeadlineExceeded: the message says how many items were not inserted.
            Closed: the replay was closed before all items were inserted.
        """
        self._rows.close(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._rows.abandon()

    def __repr__(self) -> str:
        return repr(self._rows)
