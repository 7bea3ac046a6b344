"""The tables, batch sizes and views that one client samples; what was checked once holds for later requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from headrace.checks import check_count
from headrace.replay.local import LocalReplay
from headrace.replay.sampling.replay_sample import ReplaySample
from headrace.replay.sampling.sampler import Sampling
from headrace.server.messages.requests import GetItems, Sample
from headrace.server.messages.views import views_of
from headrace.server.serving.batches.batch_sizes import check_batch, item_nbytes
from headrace.store.gather import Pool
from headrace.tables.live_table import LiveTable
from headrace.views.view import View

_MOST_VIEWS = 256
_MOST_SOURCES = 256


class SampleSource:
    """Draws batches of one size and of the same views out of one table.

    Args:
        replay, live, batch_size, views: see the attributes.
        sampling: of the replay, for this client.

    Attributes:
        replay: of the table.
        live: the table.
        batch_size: number of items.
        views: that the batches present; None: the signature's tree.
    """

    __slots__ = ("_can_draw", "_sampling", "batch_size", "live", "replay", "views")

    def __init__(
        self,
        replay: LocalReplay,
        live: LiveTable,
        batch_size: int,
        views: Mapping[str, View] | None,
        sampling: Sampling,
    ) -> None:
        self.replay, self.live, self.batch_size, self.views = replay, live, batch_size, views
        self._sampling = sampling
        self._can_draw = partial(live.can_sample, batch_size)

    def draw(self, may_draw: Callable[[], bool] | None = None) -> ReplaySample | None:
        """Returns a batch; None: it cannot be drawn now.

        Args:
            may_draw: see `Sampling.sample_now`; None: whether the rate limiter admits a batch behind those that wait.

        Raises:
            Exception: it can never be drawn.
        """
        self._sampling.keep_up(self.replay.sampling)
        return self._sampling.sample_now(self.live, self.batch_size, self.views, may_draw or self._can_draw)


class SampleSources:
    """The sources of one client.

    Args:
        pool: of the arrays of large batches.
        most_nbytes: of a batch.
        warn: takes the text of a warning to the client.
    """

    def __init__(self, pool: Pool, most_nbytes: int, warn: Callable[[str], None]) -> None:
        self._pool = pool
        self._most_nbytes = most_nbytes
        self._warn = warn
        self._views: dict[int, Mapping[str, View]] = {}
        self._samplings: dict[str, Sampling] = {}
        self._sources: dict[tuple[str, str, int, int | None], SampleSource] = {}

    def source_of(self, request: Sample, replay: LocalReplay) -> SampleSource:
        """Returns the source of the batches of a request.

        Raises:
            ValueError: no batch is that large, or the views were not described.
            KeyError: no such table.
            Closed: the replay is closed.
        """
        key = request.replay, request.table, request.batch_size, request.views
        found = self._sources.get(key)
        if found is None or request.described is not None:
            found = self._new_source(request, replay)
            if len(self._sources) >= _MOST_SOURCES:
                self._sources.clear()
            self._sources[key] = found
        return found

    def _new_source(self, request: Sample, replay: LocalReplay) -> SampleSource:
        views = self.views_of(request)
        live = replay.live_table(request.table)
        batch_size = check_count("batch_size", request.batch_size, 1)
        check_batch(batch_size, item_nbytes(replay.signature, views), self._most_nbytes)
        sampling = self._samplings.get(request.replay)
        if sampling is None:
            sampling = replay.sampling.with_pool(self._pool, self._warn)
            self._samplings[request.replay] = sampling
        return SampleSource(replay, live, batch_size, views, sampling)

    def views_of(self, request: Sample | GetItems) -> Mapping[str, View] | None:
        """Returns the views of a request, which describes them or names those of an earlier one.

        Raises:
            ValueError: no such views were described, or too many.
        """
        if request.views is None:
            return None
        if request.described is not None:
            if len(self._views) >= _MOST_VIEWS and request.views not in self._views:
                raise ValueError(f"views: expected at most {_MOST_VIEWS} at a time, got one more")
            self._views[request.views] = views_of(request.described)
            self._sources.clear()
        if request.views not in self._views:
            raise ValueError(f"views: expected the number of views that were described, got {request.views}")
        return self._views[request.views]
