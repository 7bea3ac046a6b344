"""The last ten minutes of statistics, one sample a second."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from headrace.errors import HeadraceError
from headrace.monitor.sources import Source
from headrace.server.queue_info import BatchQueueInfo
from headrace.server.statistics import ConnectionCounts
from headrace.statistics import ReplayStatistics

if TYPE_CHECKING:
    from headrace.collectors import CollectorStatistics

_LOGGER = logging.getLogger(__name__)
SECONDS_BETWEEN_SAMPLES = 1.0
KEPT_SAMPLES = 601
"""Ten minutes of samples, and the one before them, from which the first rate is computed."""


class HasCollectorStatistics(Protocol):
    """The part of a collector that is recorded."""

    def statistics(self) -> CollectorStatistics:
        """Returns one frozen record."""


@dataclass(frozen=True)
class Sample:
    """The statistics of one instant.

    Attributes:
        number: of the sample, from 1 on.
        seconds: when it was taken, on the monotonic clock.
        replays: the record of each replay that answered, by name.
        queues: the record of each queue that answered, by name.
        server: the counters of the server; None without a server, or if it did not answer.
        collector: the record of the collector; None without a collector, or if it did not answer.
        problems: the error of each replay and queue that did not answer, by name.
    """

    number: int
    seconds: float
    replays: Mapping[str, ReplayStatistics]
    queues: Mapping[str, BatchQueueInfo]
    server: ConnectionCounts | None
    collector: CollectorStatistics | None
    problems: Mapping[str, str]


class Recorder:
    """Takes a sample every second on a daemon thread. Readers never wait for a replay.

    Args:
        source: of the statistics.
        collector: None for none.
        interval: seconds between samples.

    >>> import headrace as hr
    >>> from headrace.monitor.sources import EachOne
    >>> with hr.Replay(hr.Signature.like({"x": 0}), [hr.Table.queue("q", 9)]) as replay:
    ...     recorder = Recorder(EachOne({"replay": replay}))
    ...     recorder.take()
    >>> recorder.latest.number, recorder.latest.replays["replay"].tables["q"].size
    (1, 0)
    """

    def __init__(
        self,
        source: Source,
        collector: HasCollectorStatistics | None = None,
        *,
        interval: float = SECONDS_BETWEEN_SAMPLES,
    ) -> None:
        self._source, self._collector, self._interval = source, collector, interval
        # Replaced by each sample, never changed, so that readers need no lock.
        self._samples: tuple[Sample, ...] = ()
        self._numbers = itertools.count(1)
        self._taking = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headrace-monitor-recorder", daemon=True)

    def start(self) -> None:
        """Takes the first sample, and starts the thread that takes the others."""
        self.take()
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread. A second call does nothing."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5.0)

    def take(self) -> None:
        """Takes a sample now."""
        with self._taking:
            found = self._source.read()
            sample = Sample(
                number=next(self._numbers),
                seconds=time.monotonic(),
                replays={
                    name: each for name, each in found.records.items() if isinstance(each, ReplayStatistics)
                },
                queues={
                    name: each for name, each in found.records.items() if isinstance(each, BatchQueueInfo)
                },
                server=found.server,
                collector=self._ask_collector(),
                problems=found.problems,
            )
            self._samples = (*self._samples[1 - KEPT_SAMPLES :], sample)

    def _ask_collector(self) -> CollectorStatistics | None:
        if self._collector is None:
            return None
        try:
            return self._collector.statistics()
        except (HeadraceError, OSError, RuntimeError) as error:
            _LOGGER.debug("no statistics of the collector: %s", error)
            return None

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            try:
                self.take()
            except Exception:
                # A page without new numbers shows their age. The training run must not end for it.
                _LOGGER.exception("a sample of the monitor failed; the next is taken in %s s", self._interval)

    # ---- reading ---------------------------------------------------------------------------------------------------

    @property
    def latest(self) -> Sample:
        """The newest sample."""
        return self._samples[-1]

    def since(self, number: int) -> list[Sample]:
        """Returns the samples after the one of this number, and that sample itself if it is still there."""
        return [sample for sample in self._samples if sample.number >= number]

    def newest_record(self, replay: str) -> ReplayStatistics | None:
        """Returns the newest record of a replay, which may be older than the newest sample; None if there is none."""
        return next(
            (sample.replays[replay] for sample in reversed(self._samples) if replay in sample.replays),
            None,
        )
