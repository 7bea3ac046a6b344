"""Makes batches `[N, T, ...]` of rollouts that are copied in, one block of lanes after another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.collectors.batches.batch import Batch, as_trees
from headrace.collectors.batches.episode_numbering import EpisodeNumbering
from headrace.collectors.batches.last_rows import Marking
from headrace.collectors.batches.view_columns import ViewColumns
from headrace.spec import Signature
from headrace.store.gather import Pool


class InPlace(NamedTuple):
    """Columns that a batch shows where they are stored, steps first in memory.

    Attributes:
        columns: `[N, T, ...]`.
        following: `[N, T, ...]`, the observations after each step, over the memory of the same columns.
    """

    columns: Mapping[str, NDArray[Any]]
    following: Mapping[str, NDArray[Any]]


NOTHING = InPlace({}, {})


class BatchArrays:
    """The arrays of a batch under construction. `BlockReader.copy_into` fills the rows of a block of lanes.

    Args:
        signature: of a step.
        observed: names of the columns that an observation has.
        lanes, steps: N and T.
        pool: gives the memory of large columns.
        in_place: what is shown where it is stored.

    Attributes:
        in_place: see above.
        columns: `[N, T, ...]` of each column.
        following: `[N, T, ...]` of each observed column, the observations after each step; in the order in memory of
            the column.
        versions: int64[N, T], of the policy that acted.
        starts, masked: bool[T, N], where an episode begins, and where no transition was taken.
    """

    def __init__(
        self,
        signature: Signature,
        observed: Iterable[str],
        lanes: int,
        steps: int,
        pool: Pool,
        in_place: InPlace,
    ) -> None:
        self.signature = signature
        self.observed = frozenset(observed).intersection(signature.columns)
        self.in_place = in_place
        specs = signature.columns
        self.columns = {
            name: pool.empty((lanes, steps, *spec.shape), spec.dtype)
            for name, spec in specs.items()
            if name not in in_place.columns
        } | dict(in_place.columns)
        self.following = {
            name: pool.empty((steps, lanes, *specs[name].shape), specs[name].dtype).swapaxes(0, 1)
            if name in in_place.columns
            else pool.empty(self.columns[name].shape, specs[name].dtype)
            for name in self.observed.difference(in_place.following)
        } | dict(in_place.following)
        self.versions = np.zeros((lanes, steps), np.int64)
        self.starts = np.zeros((steps, lanes), np.bool_)
        self.masked = np.ones((steps, lanes), np.bool_)

    def zero_masked(self, mask: NDArray[np.bool_]) -> None:
        """Writes zeros into the rows where `mask`, bool[N, T], is False."""
        if not mask.all():
            for column in (*self.columns.values(), *self.following.values(), self.versions):
                column[~mask] = 0

    def make_read_only(self) -> set[str]:
        """Makes observations that are shown in place read-only, and those after them, which may be in the same memory.

        Returns:
            The names of these in the batch.
        """
        names = set()
        for name in self.observed.intersection(self.in_place.columns):
            self.columns[name].flags.writeable = self.following[name].flags.writeable = False
            names.add(name.partition("/")[0])
        return names | {"next_observation"} if "observation" in names else names


class BatchMaker:
    """Makes the batches of N lanes: numbers their episodes, and adds the columns of views.

    Args:
        lanes: N.
        numbering: of the episodes of these lanes.
        views: further columns.
        worker_idx: the worker that collects all lanes; None for several, or none.
        marks: marks rows of a rollout when it is complete; None: they were marked when they were written.

    Attributes:
        marks: see above.
    """

    def __init__(
        self,
        lanes: int,
        numbering: EpisodeNumbering,
        views: ViewColumns,
        worker_idx: int | None = None,
        marks: Marking | None = None,
    ) -> None:
        self.marks = marks
        self._lanes = lanes
        self._numbering = numbering
        self._views = views
        self._worker_idx = worker_idx
        self._signature: Signature | None = None
        self._pool = Pool()

    def state_dict(self) -> dict[str, Any]:
        """Returns the numbers of the episodes, and the rows that views look back on."""
        return {"numbering": self._numbering.state_dict(), "views": self._views.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from a state."""
        self._numbering.load_state_dict(state["numbering"])
        self._views.load_state_dict(state["views"])

    def restored(self, columns: Mapping[str, Any]) -> Batch:
        """Returns a batch of a state again."""
        shown = {name: view for name, view in self._views.views.items() if name in columns}
        return Batch(dict(columns), self._worker_idx, shown)

    def begin(
        self,
        signature: Signature,
        observed: Iterable[str],
        steps: int,
        in_place: InPlace = NOTHING,
    ) -> BatchArrays:
        """Returns the arrays of the next batch, with T = `steps`.

        Args:
            signature: of a step; it may have more columns than that of the last batch.
            observed: names of the columns that an observation has.
            steps: T.
            in_place: see `BatchArrays`.

        Raises:
            SpecError, TypeError, ValueError: a view that cannot be shown.
        """
        arrays = BatchArrays(signature, observed, self._lanes, steps, self._pool, in_place)
        if signature != self._signature:
            self._views.use(signature, arrays.observed)
            tree = signature.tree
            observed = [name for name in tree if _is_observed(name, arrays.observed)]
            self._observation = Signature({name: tree[name] for name in observed})
            self._signature = signature
        return arrays

    def finish(self, arrays: BatchArrays) -> Batch:
        """Returns the batch; rows that were not filled are masked."""
        signature, mask = arrays.signature, ~arrays.masked.T.copy()
        if self.marks is not None:
            self.marks(arrays.columns["truncated"].T, mask.T)
        ids, positions = self._numbering.number(arrays.starts, arrays.masked)
        arrays.zero_masked(mask)
        in_place = arrays.make_read_only()
        counted = {"episode_id": ids, "t": positions, "policy_version": arrays.versions}
        following = as_trees(self._observation, arrays.following)["observation"]
        trees = as_trees(signature, arrays.columns)
        ordered = _ordered(trees, following, counted | {"mask": mask})
        shown = self._views.present(arrays.columns | counted, arrays.following, mask)
        return Batch(ordered | shown, self._worker_idx, self._views.shown, in_place.difference(shown))


def _ordered(trees: dict[str, Any], following: Any, counted: dict[str, Any]) -> dict[str, Any]:
    """Returns trees of columns `[n, T, ...]` in the order of a batch, without copies.

    Args:
        trees: of the columns of the steps.
        following: the observations that followed.
        counted: ids, indices and versions of each step, and the mask.
    """
    ordered = {name: trees[name] for name in ("observation", "action", "reward", "terminated", "truncated")}
    ordered["next_observation"] = following
    ordered |= counted
    ordered.update({name: tree for name, tree in trees.items() if name not in ordered})
    return ordered


def _is_observed(name: str, observed: Iterable[str]) -> bool:
    return any(column == name or column.startswith(f"{name}/") for column in observed)
