"""The newest rows of environments that step together, kept for views that look back."""

# Rules: views R16

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.spec import ArraySpec
from headrace.views.arrays.newest import NewestRows
from headrace.views.causality import look_back
from headrace.views.columns import Columns
from headrace.views.view import View


class History:
    """Presents views of the newest rows of n lanes, and keeps the rows before them that these views read.

    Each column is a ring `[C, n, ...]` of the newest C vector steps, where C - 1 is the look-back of the views. Rows
    are numbered by vector steps.

    Args:
        columns: the columns there are.
        views: maps names to views, none of which looks ahead.
        lanes: n.

    Raises:
        SpecError, TypeError, ValueError: as `views.apply`.

    >>> from headrace.spec import Signature
    >>> columns = Columns(Signature({"observation": ArraySpec((), "int64")}), {})
    >>> history = History(columns, {"stack": View("observation", shift="-1:0", fill=-1)}, 2)
    >>> history.write({"observation": np.array([5, 6])})
    >>> history.advance(np.array([1]))
    >>> history.write({"observation": np.array([7, 8])})
    >>> history.present()["stack"].tolist()
    [[5, 7], [-1, 8]]
    """

    def __init__(self, columns: Columns, views: Mapping[str, View], lanes: int) -> None:
        # In a ring the rows of a lane are a vector step apart.
        self._plan = NewestRows(columns, views, stride=lanes)
        self._depth = 1 + look_back(views.values())
        # The rows of each vector step.
        self._rows = np.arange(self._depth * lanes).reshape(self._depth, lanes)
        self._step = 0
        self._begins = np.zeros(lanes, np.int64)
        specs = columns.signature.columns
        self._rings = {name: _zeros(self._depth, lanes, specs[name]) for name in self._plan.columns}
        self._flat = {
            name: ring.reshape(self._rows.size, *ring.shape[2:]) for name, ring in self._rings.items()
        }

    @property
    def columns(self) -> frozenset[str]:
        """Names of the columns that the views read."""
        return frozenset(self._rings)

    @property
    def t(self) -> NDArray[np.int64]:
        """int64[n], the index of each lane's newest row in its episode."""
        return self._step - self._begins

    def write(self, values: Mapping[str, Any]) -> None:
        """Writes values of the newest rows, `[n, ...]` or one for all; columns that no view reads are ignored."""
        place = self._step % self._depth
        for name, ring in self._rings.items():
            if name in values:
                ring[place] = values[name]

    def advance(self, restarted: NDArray[np.integer[Any]]) -> None:
        """Appends a row to each lane; in the lanes `restarted` it is the first of an episode."""
        self._step += 1
        self._begins[restarted] = self._step

    def restart(self, lanes: NDArray[np.integer[Any]] | None = None) -> None:
        """Makes the newest row of these lanes (None: of all) the first of an episode."""
        self._begins[slice(None) if lanes is None else lanes] = self._step

    def continue_from(self, other: History) -> None:
        """Takes over the rows of another history of these lanes, as far as it has the columns."""
        assert self._depth == other._depth
        self._step, self._begins = other._step, other._begins
        for name, ring in self._rings.items():
            if name in other._rings and other._rings[name].shape == ring.shape:
                ring[...] = other._rings[name]

    def state_dict(self) -> dict[str, Any]:
        """Returns copies of the rows and of the borders of episodes."""
        rows = {name: ring.copy() for name, ring in self._rings.items()}
        return {"rows": rows, "step": self._step, "begins": self._begins.copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on after the rows of a state of the same views; columns that are not known yet are left out."""
        self._step, self._begins = int(state["step"]), np.array(state["begins"], np.int64)
        for name, ring in self._rings.items():
            if name in state["rows"]:
                ring[...] = state["rows"][name]

    def present(self) -> dict[str, Any]:
        """Presents the views of the newest row of each lane, `[n, ...]` or `[n, W, ...]`, in arrays of their own."""
        return self._plan.present(self._flat, self._rows[self._step % self._depth], self.t)


def _zeros(depth: int, lanes: int, spec: ArraySpec) -> NDArray[Any]:
    return np.zeros((depth, lanes, *spec.shape), spec.dtype)
