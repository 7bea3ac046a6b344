"""Vector steps of a rollout, appended to a writer of rows."""

# Rules: collectors CF2, CE4

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from headrace.leases.forwarding import Steps
from headrace.leases.page_views import Columns

if TYPE_CHECKING:
    from headrace.replay.intake.writer_like import WriterLike


class StepAppender:
    """Appends the steps of rollouts to a writer, with the final rows of the episodes that end.

    Args:
        writer: of rows.
        lanes: of the writer.
        observed: names of the columns that an observation has.
        prepare: called before each step, so that the writer has room for it.

    Attributes:
        appended: number of steps that the present or last call has appended; valid in `prepare`.
    """

    def __init__(
        self, writer: WriterLike, lanes: int, observed: Iterable[str], prepare: Callable[[], None]
    ) -> None:
        self._writer = writer
        self._lanes = lanes
        self._observed = tuple(observed)
        self._prepare = prepare
        self.appended = 0

    def append(self, steps: Steps) -> None:
        """Appends these steps, in their order."""
        writer, names, self.appended = self._writer, self._observed, 0
        finals, idles, ended = (steps.lanes_of(rows) for rows in (steps.final, steps.idle, steps.ended))
        done = 0
        # A writer of rows has one version for all lanes of a step: the oldest.
        versions = steps.versions if steps.versions.ndim == 1 else steps.versions.min(1)
        for step, version in enumerate(versions.tolist()):
            self.appended = step
            self._prepare()
            values = {name: column[step] for name, column in steps.columns.items()}
            if (final := finals[step]).size:
                writer.end_lanes(final, {name: values[name][final] for name in names})
            if writer.policy_version != version:
                writer.policy_version = version
            beside = slice(done, done := done + len(ended[step]))
            last = {name: steps.finals[name][beside] for name in names}
            self._append(values, np.union1d(final, idles[step]), ended[step], last)

    def _append(
        self, values: Columns, masked: NDArray[np.int64], ended: NDArray[np.int64], last: Columns
    ) -> None:
        if not masked.size and not ended.size:
            # A writer of one lane has no axis of lanes.
            step = values if self._lanes > 1 else {name: value[0] for name, value in values.items()}
            self._writer.append_checked(step)
        elif masked.size < self._lanes:
            idle = np.zeros(self._lanes, np.bool_)
            idle[masked] = True
            self._writer.append_ends(values, idle, ended, last if ended.size else {})
