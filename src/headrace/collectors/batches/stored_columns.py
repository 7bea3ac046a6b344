"""Steps of a rollout with the columns that `postproc` has made of them."""

# Rules: collectors CR10

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.collectors.batches.batch import Batch
from headrace.collectors.batches.handing_out import Postproc, to_be_stored
from headrace.leases.forwarding import Steps
from headrace.views import View

Columns = Mapping[str, NDArray[Any]]


class StoredColumns:
    """Puts the columns of postprocessed batches into the steps that a replay stores.

    `next_observation` of a batch is stored where no row of the batch itself follows: in the final rows of trajectories,
    and in the observations after the last step. A column whose place in batches a view takes is stored as it was
    collected.

    Args:
        postproc: the user's function.
        views: of the batches.
    """

    def __init__(self, postproc: Postproc, views: Mapping[str, View]) -> None:
        self._postproc = postproc
        self._shown = {name for name, view in views.items() if view.used_for_training}
        # The observations after the last step of the rollout before.
        self._following: Columns = {}

    def of(self, batch: Batch, steps: Steps, following: Columns) -> tuple[Batch, Steps, Columns]:
        """Calls `postproc` on a rollout; returns it as it is to be stored.

        Args:
            batch: the rollout, `[n, T, ...]`.
            steps: the steps that were taken, `[T, n, ...]`; a rollout that was stopped has fewer than its batch.
            following: columns `[n, ...]`, the observations after them.

        Returns:
            The batch, the steps, and the observations after them.

        Raises: as `to_be_stored`.
        """
        batch = to_be_stored(self._postproc, batch)
        return batch, *self._replaced(steps, following, batch)

    def _replaced(self, steps: Steps, following: Columns, batch: Batch) -> tuple[Steps, Columns]:
        count = len(steps.versions)
        columns = {
            name: column
            if name.partition("/")[0] in self._shown
            else batch[name].swapaxes(0, 1)[:count].copy()
            for name, column in steps.columns.items()
        }
        finals, after = dict(steps.finals), dict(following)
        final, ended = (np.divmod(rows, batch.shape[0]) for rows in (steps.final, steps.ended))
        for name in following:
            path = _next_path(name)
            if (
                path is None
            ):  # A column of `info` has no next one in a batch: the rows outside of it are as collected.
                columns[name][final] = steps.columns[name][final]
                continue
            nexts = batch[path].swapaxes(0, 1)[:count]
            before = np.concatenate([self._following.get(name, following[name])[None], nexts[:-1]])
            columns[name][final] = before[final]
            finals[name], after[name] = nexts[ended], nexts[-1].copy()
        self._following = after
        return steps._replace(columns=columns, finals=finals), after


def _next_path(name: str) -> str | None:
    """Returns the path in a batch of what follows an observed column; None for a column of `info`.

    >>> _next_path("observation/camera"), _next_path("action_mask")
    ('next_observation/camera', None)
    """
    head, slash, rest = name.partition("/")
    return f"next_observation{slash}{rest}" if head == "observation" else None
