"""The interface of writers of rows, which step writers and observers work with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headrace.checks import check_count
from headrace.ends import EndOfEpisode
from headrace.replay.intake.selection import Selection

UNKNOWN_STEPS = -1

Made: TypeAlias = tuple[int, range]
"""Items that one rule made in one call: the number of the rule, and their keys in order."""


_MOST_VERSION = 2**31 - 1


def check_version(version: int) -> None:
    """Refuses a policy's version that a row has no room for.

    Raises:
        TypeError: not an integer.
        ValueError: negative, or above 2**31 - 1.

    >>> check_version(2**31 - 1)
    """
    if check_count("policy_version", version, 0) > _MOST_VERSION:
        raise ValueError(f"policy_version: expected at most {_MOST_VERSION}, got {version}")


class WriterLike(Protocol):
    """Appends vector steps of `lanes` environments, and makes items of them by its rules. One thread uses it.

    `ReplayLike.row_writer` returns one: a replay of this process writes into its own pages, a client sends the same
    steps. Calls that take checked columns rely on their shapes and dtypes and look at none of them.

    An item is *queued* when the call returns that made it, and *applied* when the rate limiter has let it into its
    table; `flush` waits for that. Rules are known by their numbers: their places in the list of the writer.

    Errors of every call that writes:
        Closed: the writer or its replay is closed.
        RuntimeError: the replay belongs to another process, and this one was forked from that.
    """

    # ---- settings --------------------------------------------------------------------------------------------------

    @property
    def lanes(self) -> int:
        """Number of lanes, N below."""

    @property
    def policy_version(self) -> int:
        """The version stored with each step from now on, -1 where it is unknown; it can be set."""

    @policy_version.setter
    def policy_version(self, version: int) -> None: ...

    def declare_final_columns(self, columns: Iterable[str]) -> None:
        """Says which columns final rows hold values of: the same in all final rows of a replay.

        Raises:
            SpecError: earlier final rows of the replay hold other columns; nothing changed.
        """

    def declare_padding(self, table: str, values: Mapping[str, Any]) -> None:
        """Sets the values of padded rows in the batches of a table; other columns stay zero there.

        Args:
            table: its name.
            values: maps columns to the value of one row.

        Raises:
            KeyError: no such table.
            SpecError: no such column, or a value that it cannot hold; nothing changed.
        """

    # ---- steps -----------------------------------------------------------------------------------------------------

    def append(self, step: Any) -> None:
        """Checks and stores one step of every lane, and makes the items whose windows it completes.

        Args:
            step: a tree of the signature, or a mapping of its columns: leaves have the signature's shapes if there is
                one lane, and a leading axis N if there are more.

        Raises:
            SpecError: the step does not fit; nothing is stored.
            StoreFull: no free page; nothing is stored, and the writer goes on when items leave. Or there is no memory
                for the items of the step: the message then says that the step was stored.
            DeadlineExceeded: `max_pending` items were pending for the writer's timeout; nothing is stored.
        """

    def wait_to_append(self) -> None:
        """Waits as `append` does if too many items are pending, and stores nothing.

        Raises:
            DeadlineExceeded: `max_pending` items were pending for the writer's timeout.
        """

    @property
    def steps(self) -> int:
        """Rises when a vector step is stored. So after Ctrl-C it tells whether a call has stored its step.

        `UNKNOWN_STEPS`: this is not known of the last call.
        """

    def append_checked(self, step: Mapping[str, Any]) -> int:
        """Does the same as `append`, without checks, and without waiting for pending items.

        Args:
            step: maps every column to an array of the signature's dtype, shaped as for `append`.

        Returns:
            `steps` after it.

        Raises:
            StoreFull: see `append`.
        """

    def append_ends(
        self,
        step: Mapping[str, Any],
        idle: NDArray[np.bool_],
        ended: NDArray[np.int64],
        finals: Mapping[str, NDArray[Any]],
    ) -> None:
        """Does `append_checked` and then `end_lanes` in one: both happen, or neither.

        Args:
            step: maps every column to an array `[N, ...]`; there is an axis of lanes also for one lane.
            idle: bool[N]: lanes that store no row, because their environment was reset in this step. Their episodes
                have ended before with a final row.
            ended: int64[m], rising: the lanes whose episodes end with this step.
            finals: maps columns to arrays `[m, ...]`: the final rows of these lanes, zero in the other columns.

        Raises:
            StoreFull: see `append`.
            SpecError: earlier final rows of the replay hold other columns; nothing is stored.
        """

    def append_rows(self, rows: Mapping[str, NDArray[Any]], final: NDArray[np.bool_]) -> int:
        """Does the same as `append_checked` and `end_lanes` for rows of one lane, as many as it can at once.

        The writer has one lane, and no priorities or windows may be given for the call. Items of several rules are made
        in the order of the rules.

        Args:
            rows: maps every column to an array `[n, ...]` of the signature's dtype, n >= 1.
            final: bool[n]: the final rows of episodes. They are zero in the columns other than those of
                `declare_final_columns`, which was called before.

        Returns:
            The number of rows that were stored: at least one. A final row that follows them can be stored for certain.

        Raises:
            StoreFull: no free page; nothing is stored.
        """

    @property
    def staged(self) -> Mapping[str, NDArray[Any]]:
        """Maps some columns to arrays `[N, ...]` of the step that is appended next; there may be none.

        `append_checked` and `append_ends` do not copy a column that is given as its staged array. Every other way to
        append a step overwrites them.
        """

    @property
    def open_lanes(self) -> NDArray[np.bool_]:
        """bool[N], lanes in an episode after the calls that returned or raised; after Ctrl-C it is not known."""

    def make_room(self, steps: int = 1, ended: NDArray[np.int64] | None = None) -> None:
        """Makes sure that `steps` more steps of every lane can be stored; final rows of all lanes are such a step.

        Args:
            steps: number of steps.
            ended: int64[m], rising: lanes whose final rows can be stored after these steps; None: none.

        Raises:
            StoreFull: no free page; nothing changed.
        """

    # ---- ends of episodes ------------------------------------------------------------------------------------------

    def end_episode(self, final: Any = None, lane: int | None = None) -> None:
        """Checks and stores the end of an episode; the next step of the lane begins another.

        Args:
            final: the last observation: a partial step such as `{"observation": ...}`, stored as the final row with
                zeros in the other columns; or the observation alone. None: it is not known.
            lane: its number; None ends the episodes of all lanes (leaves have a leading axis N if there are several).

        Raises:
            ValueError: no such lane, or one without a step since its last end; nothing changed.
            SpecError: `final` does not fit; nothing changed.
            StoreFull: no free page for the final rows; nothing changed.
        """

    def end_lanes(self, lanes: NDArray[np.int64], values: Mapping[str, NDArray[Any]] | None) -> None:
        """Ends the episodes of some lanes after their last step, and makes the items that this completes.

        Args:
            lanes: int64[m], rising; each is in an episode.
            values: maps columns to arrays `[m, ...]`: the final rows, zero in the other columns. None stores no final
                rows.

        Raises:
            StoreFull: no free page for the final rows; nothing changed.
            SpecError: earlier final rows of the replay hold other columns; nothing changed.
        """

    def cut_open_lanes(self, end: EndOfEpisode | None = None) -> None:
        """Ends all open episodes without final rows, and makes the items that this completes. Streams end too.

        Args:
            end: replaces the ends of all rules for this call; None keeps them.
        """

    def drop_open_lanes(self, lanes: NDArray[np.int64] | None = None) -> None:
        """Ends open episodes without final rows and without further items. Streams of the lanes end too.

        Args:
            lanes: int64[m], rising; lanes without an open episode are allowed. None is all.
        """

    def end_streams(self, lanes: NDArray[np.int64] | None = None) -> None:
        """Starts new streams in some lanes: no window of a rule with `EndOfEpisode.CONTINUE` crosses this point.

        Args:
            lanes: int64[m], rising; None is all.
        """

    # ---- items -----------------------------------------------------------------------------------------------------

    def create_item(self, table: str, length: int, priority: float | None = None, lane: int = 0) -> int:
        """Makes an item of the last `length` rows of a lane.

        Args:
            table: its name.
            length: number of rows, 1 to `history`, all of one episode.
            priority: finite and >= 0; None: `Table.new_priority`.
            lane: its number.

        Returns:
            The key, at once, whether the item is pending or applied.

        Raises:
            KeyError: no such table.
            ValueError: fewer rows in reach, a window across the end of an episode, or a bad priority; nothing is made.
            DeadlineExceeded: `max_pending` items were pending for the writer's timeout; nothing is made.
            StoreFull: no memory for the item; it is not made.
        """

    def give_priorities(
        self,
        priorities: Mapping[int, NDArray[np.float64]],
        lanes: Mapping[int, NDArray[np.int64]] | None = None,
    ) -> None:
        """Sets the priorities of the items that the next call makes, in place of those of their rules.

        Args:
            priorities: maps numbers of rules to float64[m], finite and >= 0: one for each of the m items that the rule
                makes in that call, in order.
            lanes: maps the same numbers to int64[m]: the lane of each item. None: every lane has one item, or there is
                one lane.
        """

    def select_windows(self, selection: Selection) -> None:
        """Says which items the next call makes of rules whose windows are selected (`PatternWindow`).

        A call for which nothing was said makes none of them.

        Args:
            selection: masks bool[N] for every such rule of the writer.
        """

    def record_items(self) -> None:
        """Makes the writer note its items for `take_made`, and leave errors of items to `raise_refused`."""

    def take_made(self) -> Sequence[Made]:
        """Returns the items that rules made since the last call of this, or of `record_items`, in order.

        Over a client a look at them may wait for the server (`LaterMade`); then it raises `DeadlineExceeded`,
        `Disconnected` or `Closed` if the server does not tell.
        """

    def raise_refused(self) -> None:
        """Raises what kept items of stored rows from being made since the last call of this.

        Without `record_items` the call that makes the items raises it.

        Raises:
            StoreFull: no memory for items; their rows are stored.
        """

    # ---- waiting and closing ---------------------------------------------------------------------------------------

    @property
    def pending(self) -> int:
        """Number of items that are queued and not yet applied."""

    def pending_from(self, least: int) -> int:
        """Returns `pending` if it is at least `least`, else any smaller number, for which a client asks nobody."""

    def wait_pending(self, most: int, timeout: float | None) -> None:
        """Returns when at most `most` items are pending.

        Args:
            most: number of items.
            timeout: in seconds; None waits for ever.

        Raises:
            DeadlineExceeded: `.pending` items still wait; they stay pending.
        """

    def flush(self, timeout: float | None = None, durable: bool = False) -> None:
        """Returns when every item is applied.

        Args:
            timeout: in seconds; None waits for ever.
            durable: wait also until everything that was applied is on the disk.

        Raises:
            DeadlineExceeded: says how many items wait for which table; they stay pending.
            Closed: the replay is closed; says how many items were refused.
            ValueError: `durable`, and the replay lives in memory.
            RuntimeError: a selector or rate limiter of the user failed on items of this writer.
        """

    def close(self, timeout: float | None = None) -> None:
        """Flushes, then gives back the rows that only this writer holds. A second call does nothing.

        Raises:
            DeadlineExceeded: says how many items were not applied; they stay pending and the writer stays open.
            Closed: the replay was closed before all items were applied; the writer is closed.
        """

    def abandon(self) -> None:
        """Closes without waiting. Pending items are applied when their tables open; a `ResourceWarning` counts them."""
