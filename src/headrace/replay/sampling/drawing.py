"""The call `sample`, the same for the replays of this process, of clients and of shards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

from headrace.replay.conversion.frameworks import converter_to
from headrace.replay.only_table import table_and_size
from headrace.replay.sampling.replay_sample import ReplaySample
from headrace.views.view import View

if TYPE_CHECKING:
    from headrace.replay.conversion.jax_batch import JaxBatch
    from headrace.replay.conversion.torch_batch import TorchBatch

Views = Mapping[str, View]


class DrawsBatches:
    """Base of replays: reads the arguments of `sample`, and converts the batch."""

    @property
    def table_names(self) -> Sequence[str]:
        """The names of the tables, in the order given; each class has its own."""
        raise NotImplementedError

    def _draw(self, table: str, batch_size: int, views: Views | None, timeout: float | None) -> ReplaySample:
        """Draws a batch; see `sample`, whose errors it raises, an unknown table and a wrong size included."""
        raise NotImplementedError

    @overload
    def sample(
        self,
        table: str | int | None = None,
        batch_size: int | None = None,
        *,
        views: Views | None = None,
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
        views: Views | None = None,
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
        views: Views | None = None,
        timeout: float | None = None,
        to: Literal["jax"],
        device: Any = None,
    ) -> JaxBatch: ...

    def sample(
        self,
        table: str | int | None = None,
        batch_size: int | None = None,
        *,
        views: Views | None = None,
        timeout: float | None = None,
        to: str = "numpy",
        device: Any = None,
    ) -> ReplaySample | TorchBatch | JaxBatch:
        """Draws a whole batch at one instant, and copies its rows.

        The counts and removals of the batch are applied before it is returned: a replay with a `path` keeps them when
        the process is killed.

        Args:
            table: name of the table. A replay with one table needs none: `replay.sample(256)`.
            batch_size: number B of items.
            views: the views; None presents the signature's tree as it is stored. A function of `views.hindsight` is
                called last, outside the lock; its errors are raised here, after the draw.
            timeout: seconds to wait for the rate limiter; None waits without limit, 0 does not wait.
            to: "numpy", "torch" or "jax": the arrays of `data` and `mask`; `info` stays NumPy.
            device: device of the arrays: any torch device, a `jax.Device` or a platform's name; None for the CPU, or
                JAX's default.

        Returns:
            `data`: leaves `[B, ...]` if the table was given only items of one step, else `[B, L, ...]`; `mask`:
            bool[B, L] or None; `info`: arrays `[B]`.

        Raises:
            DeadlineExceeded: the rate limiter did not allow the batch in time; nothing was taken or counted.
            ValueError: batch_size < 1, or a batch_size that no insert could ever admit; no name of a table where there
                are several; an unknown `to`, or a device that does not exist or is given for NumPy. Nothing was taken.
            ImportError: the framework is not installed; nothing was taken.
            OverflowError: an integer does not fit the type to which JAX narrows it.
            KeyError: no such table.
            Closed: the replay is closed.
        """
        if batch_size is None or type(table) is not str:
            table, batch_size = table_and_size(self.table_names, table, batch_size)
        if to == "numpy" and device is None:
            return self._draw(table, batch_size, views, timeout)
        convert: Callable[[ReplaySample], TorchBatch | JaxBatch] = converter_to(to, device)
        return convert(self._draw(table, batch_size, views, timeout))
