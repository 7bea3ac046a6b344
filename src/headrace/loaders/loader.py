"""A table as a stream of batches for a learner."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from headrace import forking
from headrace.checks import check_count
from headrace.clock import SYSTEM_CLOCK, Clock
from headrace.closing import Closing
from headrace.errors import Closed
from headrace.loaders.dealing import DealtStream
from headrace.loaders.draws import Query, draws_of
from headrace.loaders.ending import end_at_exit
from headrace.loaders.state import read_state, state_of
from headrace.loaders.stream import Stream
from headrace.loaders.workers import (
    STREAMS,
    check_can_travel,
    place_among_workers,
    replay_of_this_process,
)
from headrace.replay.conversion.frameworks import conversion_to
from headrace.replay.interface import TO_SAMPLE, check_replay


class Loader(Closing):
    """An endless stream of batches, sampled ahead in the background and converted to the learner's arrays.

    A batch is `replay.sample(table, batch_size)` with its arrays converted: `.data`, `.info`, `.mask`. Batches drawn
    ahead count as sampled, and use the priorities of the time of the draw; `prefetch=0` draws on request.

    With `to="torch"` the loader is also a `torch.utils.data.IterableDataset`.

    Args:
        replay: a `Replay`, or an object with its interface (`ReplayLike`). Its `sample` draws each batch; of a
            client's replay, several requests are on their way.
        table: name of the table.
        batch_size: items in a batch.
        views: the views, as for `sample`.
        prefetch: number of batches that a thread keeps ready after the first request; 0 draws in the caller.
        to: "numpy", "torch" or "jax"; `info` stays NumPy.
        device: device of the arrays: any torch device, a `jax.Device` or a platform's name; None for the CPU, or JAX's
            default.
        timeout: seconds that `next` waits for a batch; None waits without limit.
        snapshot: for a replay of this process that does not change while it is read: forked workers of a
            `DataLoader` each deliver a share of the stream, from their copies of the replay.
        clock: time for deadlines; tests pass a clock that they control.

    Raises:
        KeyError: no such table; a wrapper that does not list its tables raises it with the first batch.
        TypeError: `replay` has no `sample`.
        ValueError: batch_size < 1, prefetch < 0, timeout < 0, an unknown `to`, or a device that does not exist or is
            given for NumPy.
        ImportError: the framework is not installed.

    >>> import headrace as hr
    >>> import numpy as np
    >>> table = hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=100)
    >>> replay = hr.Replay(hr.Signature.like({"observation": np.zeros(3, np.float32)}), [table], seed=0)
    >>> with replay.writer(items=[hr.ItemRule("t", length=1)]) as writer:
    ...     for _ in range(5):
    ...         writer.append({"observation": np.ones(3, np.float32)})
    >>> with Loader(replay, "t", batch_size=2) as loader:
    ...     for batch in loader:
    ...         batch.data["observation"].shape
    ...         break
    (2, 3)
    >>> replay.close()
    """

    __signature__: ClassVar[inspect.Signature]

    def __new__(cls, *args: Any, to: str = "numpy", **kwargs: Any) -> Self:  # noqa: ARG004 - those of __init__
        """Returns a loader that is a dataset of torch, too, if `to` is "torch"; that module may import torch."""
        if cls is Loader and to == "torch":
            from headrace.loaders.torch_dataset import torch_dataset

            return object.__new__(torch_dataset(Loader))  # type: ignore[no-any-return]
        return object.__new__(cls)

    def __init__(
        self,
        replay: Any,
        table: str,
        batch_size: int,
        *,
        views: Mapping[str, Any] | None = None,
        prefetch: int = 2,
        to: Literal["numpy", "torch", "jax"] = "numpy",
        device: Any = None,
        timeout: float | None = None,
        snapshot: bool = False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        if timeout is not None and not timeout >= 0:
            raise ValueError(f"timeout: expected None or seconds >= 0, got {timeout}")
        check_replay("replay", replay, TO_SAMPLE)
        names = getattr(replay, "table_names", None)  # A wrapper may have nothing but `sample`.
        if names is not None and table not in names:
            raise KeyError(f"no table {table!r}; there are {', '.join(map(repr, names))}")
        self._replay = replay
        self._arguments = (table, check_count("batch_size", batch_size, 1))
        self._options = {
            "views": views,
            "prefetch": check_count("prefetch", prefetch, 0),
            "to": to,
            "device": device,
            "timeout": timeout,
            "snapshot": snapshot,
            "clock": clock,
        }
        self._timeout = timeout
        self._begin(DealtStream if snapshot else Stream)

    def _begin(self, stream_class: type[Stream]) -> None:
        """Makes the stream. Its thread refers to the stream only, so that the loader can be garbage collected."""
        options = self._options
        conversion = conversion_to(options["to"], options["device"])
        query = Query(*self._arguments, options["views"])
        draws = draws_of(self._replay, query)
        self._stream = stream_class(draws, conversion, options["prefetch"], options["clock"])
        self._forks = forking.forks
        STREAMS.add(self._stream)
        end_at_exit(self._stream)
        self._closes = weakref.finalize(self, self._stream.close)
        self._closes.atexit = False

    def _stream_here(self) -> Stream:
        """Returns the stream of this process: a forked child has its own."""
        if self._forks == forking.forks:
            return self._stream
        if isinstance(self._stream, DealtStream):
            self._stream.deal(*place_among_workers())
            self._forks = forking.forks
        elif not self._stream.is_closed:
            self._replay = replay_of_this_process(self._replay)
            self._closes.detach()
            self._begin(Stream)
        return self._stream

    # ---- batches ---------------------------------------------------------------------------------------------------

    def __iter__(self) -> Self:
        """Returns the loader itself: a new loop continues the stream.

        Raises:
            Closed: the loader is closed.
            RuntimeError: this is a worker process, and the replay is in another process.
        """
        if self._stream_here().is_closed:
            raise Closed("the loader is closed")
        return self

    def __next__(self) -> Any:
        """Returns the next batch. Errors of `sample` are raised here, after the batches drawn before them.

        Raises:
            DeadlineExceeded: no batch within `timeout`; nothing was taken, and the next call waits again.
            StopIteration: the loader or the replay was closed.
        """
        stream = self._stream if self._forks == forking.forks else self._stream_here()
        return stream.take(self._timeout)

    # ---- state -----------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Returns the number of delivered batches, and the batches drawn beyond them, as a picklable dict of NumPy.

        Waits for the draw in progress. Nothing more is drawn until the next request, so a `replay.save(directory)`
        right after this call fits the state.
        """
        stream = self._stream_here()
        stream.hold()
        try:
            return state_of(self._arguments[0], *stream.pending())
        finally:
            stream.release()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Delivers the batches of a state first, and then draws.

        Raises:
            RuntimeError: a batch was already requested.
            ValueError: not a state of a loader, or a state of another table.
            Closed: the loader is closed.
        """
        stream = self._stream_here()
        if stream.is_closed:
            raise Closed("the loader is closed")
        stream.begin_with(*read_state(state, self._arguments[0]))

    # ---- closing ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Ends the loops over this loader and its thread. Any thread may call it; a second call does nothing.

        Batches that are ready stay in `state_dict`.
        """
        self._stream.close()
        self._stream.join()

    def __reduce__(self) -> tuple[Any, ...]:
        check_can_travel(self._replay, snapshot=bool(self._options["snapshot"]))
        return _rebuild, (type(self), self._replay, self._arguments, self._options)

    def __repr__(self) -> str:
        table, batch_size = self._arguments
        state = "closed" if self._stream.is_closed else "open"
        kind, delivered = self._options["to"], self._stream.delivered
        return f"<Loader of {batch_size} from {table!r} to {kind}: {delivered} delivered, {state}>"


# The signature of `__new__` has no useful arguments.
_signature = inspect.signature(Loader.__init__)
Loader.__signature__ = _signature.replace(parameters=list(_signature.parameters.values())[1:])


def _rebuild(cls: type[Loader], replay: Any, arguments: tuple[str, int], options: dict[str, Any]) -> Loader:
    return cls(replay, *arguments, **options)
