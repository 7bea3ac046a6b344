"""The newest rows of environments, kept for views that look back."""

# Rules: views R16

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headrace.spec import ArraySpec
from headrace.views.arrays.newest import NewestRows
from headrace.views.causality import look_back
from headrace.views.columns import Columns
from headrace.views.view import View

Lanes: TypeAlias = NDArray[np.integer[Any]]


class History:
    """Presents views of the newest rows of n lanes, and keeps the rows before them that these views read.

    Each column is a ring `[C, n, ...]` of the newest C rows of each lane, where C - 1 is the look-back of the views.
    Lanes step together, or, in calls of some lanes, each at its own pace.

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
        # While all lanes have equally many rows one number serves them; otherwise each has its own.
        self._step = 0
        self._steps: NDArray[np.int64] | None = None
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

    def t(self, lanes: Lanes | None = None) -> NDArray[np.int64]:
        """Returns the index of the newest row of these lanes (None: of all) in its episode: int64[m]."""
        if lanes is None and self._steps is None:
            return self._step - self._begins
        chosen = slice(None) if lanes is None else lanes
        return self._own_steps()[chosen] - self._begins[chosen]

    def _newest(self, lanes: Lanes | None) -> NDArray[np.int64]:
        """Returns the newest row of each of these lanes in the rings: int64[m]."""
        if lanes is None and self._steps is None:
            together: NDArray[np.int64] = self._rows[self._step % self._depth]
            return together
        every = self._rows[0]
        chosen = every if lanes is None else lanes
        rows: NDArray[np.int64] = self._own_steps()[chosen] % self._depth * len(every) + chosen
        return rows

    def _own_steps(self) -> NDArray[np.int64]:
        if self._steps is None:
            self._steps = np.full(len(self._begins), self._step, np.int64)
        return self._steps

    def write(self, values: Mapping[str, Any], lanes: Lanes | None = None) -> None:
        """Writes values of the newest rows of these lanes (None: of all).

        Args:
            values: `[m, ...]`, or one for all; columns that no view reads are ignored.
            lanes: int64[m], each once.
        """
        if lanes is None and self._steps is None:
            place = self._step % self._depth
            for name, ring in self._rings.items():
                if name in values:
                    ring[place] = values[name]
            return
        rows = self._newest(lanes)
        for name, column in self._flat.items():
            if name in values:
                column[rows] = values[name]

    def advance(self, restarted: Lanes, lanes: Lanes | None = None) -> None:
        """Appends a row to these lanes (None: to all); in the lanes `restarted` it is the first of an episode."""
        if lanes is None and self._steps is None:
            self._step += 1
        else:
            self._own_steps()[slice(None) if lanes is None else lanes] += 1
        self.restart(restarted)

    def restart(self, lanes: Lanes | None = None) -> None:
        """Makes the newest row of these lanes (None: of all) the first of an episode."""
        chosen = slice(None) if lanes is None else lanes
        self._begins[chosen] = self._step if self._steps is None else self._steps[chosen]

    def continue_from(self, other: History) -> None:
        """Takes over the rows of another history of these lanes, as far as it has the columns."""
        assert self._depth == other._depth
        self._step, self._steps, self._begins = other._step, other._steps, other._begins
        for name, ring in self._rings.items():
            if name in other._rings and other._rings[name].shape == ring.shape:
                ring[...] = other._rings[name]

    def state_dict(self) -> dict[str, Any]:
        """Returns copies of the rows and of the borders of episodes."""
        rows = {name: ring.copy() for name, ring in self._rings.items()}
        steps = None if self._steps is None else self._steps.copy()
        return {"rows": rows, "step": self._step, "steps": steps, "begins": self._begins.copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on after the rows of a state of the same views; columns that are not known yet are left out."""
        self._step, self._begins = int(state["step"]), np.array(state["begins"], np.int64)
        self._steps = None if state["steps"] is None else np.array(state["steps"], np.int64)
        for name, ring in self._rings.items():
            if name in state["rows"]:
                ring[...] = state["rows"][name]

    def present(self, lanes: Lanes | None = None) -> dict[str, Any]:
        """Presents the views of the newest rows of these lanes (None: of all), in arrays of their own.

        Returns:
            Arrays `[m, ...]` or `[m, W, ...]`.
        """
        return self._plan.present(self._flat, self._newest(lanes), self.t(lanes))


def _zeros(depth: int, lanes: int, spec: ArraySpec) -> NDArray[Any]:
    return np.zeros((depth, lanes, *spec.shape), spec.dtype)
