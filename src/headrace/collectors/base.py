"""The part that all collectors share: iteration, the number of batches, `with`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

from headrace.collectors.batches.batch import Batch
from headrace.collectors.options import CollectorOptions
from headrace.collectors.surface.control import ControlSurface
from headrace.collectors.surface.hooks import Hooks
from headrace.collectors.surface.postprocessing import Postprocessing
from headrace.collectors.surface.profiling import ProfilingSurface
from headrace.collectors.surface.resets import Resets
from headrace.collectors.surface.state import StateSurface
from headrace.collectors.surface.versions import VersionSurface
from headrace.collectors.surface.weights import WeightSurface
from headrace.ends import Autoreset


class CollectorBase(
    Resets,
    Hooks,
    Postprocessing,
    ControlSurface,
    StateSurface,
    ProfilingSurface,
    WeightSurface,
    VersionSurface,
):
    """An iterator of batches that is used in a `with` block."""

    _options: CollectorOptions

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        batch = self.next()
        if batch is None:
            raise StopIteration
        return batch

    @abstractmethod
    def next(self, timeout: float | None = None) -> Batch | None:
        """Returns the next batch; None at the end."""

    @property
    @abstractmethod
    def _batch_size(self) -> tuple[int, str]:
        """Frames of a batch without masked rows, and the autoreset mode of the environments."""

    def __len__(self) -> int:
        # Rules: collectors CB10
        frames, autoreset = self._batch_size
        total = self._options.total_frames
        if total < 0:
            raise TypeError("this collector has no end: total_frames is -1")
        if autoreset == Autoreset.NEXT_STEP:
            raise TypeError(
                "the number of batches is not known before the end: with autoreset NEXT_STEP a reset takes a step, "
                "which does not count towards total_frames"
            )
        if not self._options.reset_when_done:
            raise TypeError(
                "the number of batches is not known before the end: with reset_when_done=False environments wait, "
                "which does not count towards total_frames"
            )
        return (total + frames - 1) // frames

    def __bool__(self) -> bool:
        return True

    @property
    def replay_buffer(self) -> Any:
        """The replay that is written to, or None."""
        return self._options.replay_buffer

    @abstractmethod
    def shutdown(
        self, timeout: float | None = None, close_env: bool = True, raise_on_error: bool = True
    ) -> None:
        """Ends the collection and releases everything."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown(self._exit_seconds(kind), raise_on_error=kind is None)

    def _exit_seconds(self, kind: type[BaseException] | None) -> float | None:  # noqa: ARG002 - for subclasses
        """Returns the time limit of the shutdown when a `with` block is left by an exception of this kind."""
        return None
