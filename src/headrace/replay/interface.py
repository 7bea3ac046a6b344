"""The interfaces of replays and of their tables: of this process, of a client, or of a wrapper."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, overload

from numpy.typing import ArrayLike

from headrace.checks import shown
from headrace.replay.intake.writer import Writer
from headrace.replay.intake.writer_like import WriterLike as WriterLike
from headrace.replay.sampling.replay_sample import ReplaySample
from headrace.spec import Signature
from headrace.statistics import ReplayStatistics, TableStatistics
from headrace.tables.description.rate_limiters import RateLimiter
from headrace.tables.description.rules import Rule
from headrace.views.view import View

if TYPE_CHECKING:
    from headrace.replay.conversion.jax_batch import JaxBatch
    from headrace.replay.conversion.torch_batch import TorchBatch

TO_SAMPLE = ("sample",)
"""Members of a replay that loaders use."""
TO_WRITE = ("signature", "table", "row_writer", "is_closed", "check_open")
"""Members of a replay that step writers and observers use."""


class TableLike(Protocol):
    """A live table of a replay."""

    @property
    def name(self) -> str:
        """Its name."""

    def __len__(self) -> int:
        """Number of items."""

    def statistics(self) -> TableStatistics:
        """Returns one frozen record, taken at one instant."""

    def configure(self, *, max_size: int | None = None, rate_limiter: RateLimiter | None = None) -> None:
        """Changes the table: waiters are looked at again, and a smaller `max_size` removes items at once.

        Raises:
            ValueError: the limiter could never open at this size; nothing changed.
        """


class ReplayLike(Protocol):
    """Steps, each stored once, and tables of items over them. Thread-safe.

    `Replay` implements it in this process, and its docstrings describe the calls. Step writers, observers and loaders
    ask for no more than this, so they also work with a replay on another machine, or with a wrapper around one. `save`
    is not part of it: that of a client takes no directory, since a client names no folder on the server.

    Errors of every call:
        Closed: the replay is closed, or is closed while the call waits.
        RuntimeError: this process was forked from the one of the replay.
    Every call with the name of a table:
        KeyError: no such table; names those that exist.
    """

    # ---- description -----------------------------------------------------------------------------------------------

    @property
    def signature(self) -> Signature:
        """The signature of one step. Also of a closed replay."""

    @property
    def final_columns(self) -> frozenset[str]:
        """The columns that final rows hold values of, the same in all; empty before the first is declared."""

    @property
    def table_names(self) -> tuple[str, ...]:
        """Names of the tables, in their order. Also of a closed replay."""

    @property
    def is_closed(self) -> bool:
        """Whether the replay was closed, or this process was forked from the one of the replay."""

    def check_open(self) -> None:
        """Raises the error of every call that finds the replay closed, or in another process."""

    # ---- writing ---------------------------------------------------------------------------------------------------

    def writer(
        self,
        lanes: int = 1,
        items: Sequence[Rule] = (),
        history: int | None = None,
        max_pending: int = 1000,
        timeout: float | None = None,
    ) -> Writer:
        """See `Replay.writer`."""

    def row_writer(
        self,
        lanes: int = 1,
        items: Sequence[Rule] = (),
        history: int | None = None,
        max_pending: int = 1000,
        timeout: float | None = None,
    ) -> WriterLike:
        """Returns a writer for code that checks steps itself and ends episodes lane by lane.

        Args and errors are those of `writer`.
        """

    # ---- sampling and items ----------------------------------------------------------------------------------------

    @overload
    def sample(
        self,
        table: str | int | None = None,
        batch_size: int | None = None,
        *,
        views: Mapping[str, View] | None = None,
        timeout: float | None = None,
        to: Literal["numpy"] = "numpy",
        device: None = None,
    ) -> ReplaySample: ...

    @overload
    def sample(
        self,
        table: str | int | None = None,
        batch_size: int | None = None,
        *,
        views: Mapping[str, View] | None = None,
        timeout: float | None = None,
        to: Literal["torch"],
        device: Any = None,
    ) -> TorchBatch: ...

    @overload
    def sample(
        self,
        table: str | int | None = None,
        batch_size: int | None = None,
        *,
        views: Mapping[str, View] | None = None,
        timeout: float | None = None,
        to: Literal["jax"],
        device: Any = None,
    ) -> JaxBatch: ...

    def sample(
        self,
        table: str | int | None = None,
        batch_size: int | None = None,
        *,
        views: Mapping[str, View] | None = None,
        timeout: float | None = None,
        to: str = "numpy",
        device: Any = None,
    ) -> ReplaySample | TorchBatch | JaxBatch:
        """See `Replay.sample`."""

    def get(self, table: str, keys: ArrayLike, *, views: Mapping[str, View] | None = None) -> ReplaySample:
        """See `Replay.get`."""

    def items(
        self, table: str, batch_size: int = 1, *, views: Mapping[str, View] | None = None
    ) -> Iterator[ReplaySample]:
        """See `Replay.items`."""

    def update_priorities(self, table: str, keys: ArrayLike, priorities: ArrayLike) -> int:
        """See `Replay.update_priorities`."""

    def delete(self, table: str, keys: ArrayLike) -> int:
        """See `Replay.delete`."""

    def reset(self, table: str) -> None:
        """See `Replay.reset`."""

    def can_insert(self, table: str, n: int = 1) -> bool:
        """See `Replay.can_insert`."""

    def can_sample(self, table: str, n: int = 1) -> bool:
        """See `Replay.can_sample`."""

    # ---- tables ----------------------------------------------------------------------------------------------------

    def table(self, name: str) -> TableLike:
        """Returns a live table."""

    def statistics(self) -> ReplayStatistics:
        """Returns one frozen record of all tables and the store, taken at one instant."""

    # ---- closing ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Ends every wait with `Closed` and refuses pending items. A second call does nothing."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes the replay."""


def check_replay(name: str, value: Any, uses: Iterable[str]) -> None:
    """Refuses an argument that lacks parts of the `ReplayLike` interface.

    Args:
        name: of the argument, for the message.
        value: the argument.
        uses: names of the members that the caller needs.

    Raises:
        TypeError: names the members that are missing.

    >>> try:
    ...     check_replay("replay", "tcp://127.0.0.1:9000", ("sample", "is_closed"))
    ... except TypeError as error:
    ...     str(error)[64:]
    "str: 'tcp://127.0.0.1:9000', which lacks sample, is_closed; make one with hr.Replay(signature, tables)"
    """
    if isinstance(value, type):
        missing = "an instance"
    else:
        missing = ", ".join(each for each in uses if not hasattr(value, each))
    if missing:
        raise TypeError(
            f"{name}: expected a Replay, or an object with its interface, got {type(value).__name__}: {shown(value)}, "
            f"which lacks {missing}; make one with hr.Replay(signature, tables)"
        )
