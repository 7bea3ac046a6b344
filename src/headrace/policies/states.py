"""The states of recurrent policies."""

# Rules: views-rollouts P1, P3; collectors CP6

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import SpecError
from headrace.spec import ArraySpec


def initial_state_of(policy: Any) -> tuple[NDArray[Any], ...]:
    """Returns the initial states of a policy for one row; empty for a policy without memory.

    Args:
        policy: may have `initial_state`, a list of arrays or a method that returns one.

    Raises:
        SpecError: not a list of arrays of numbers.

    >>> class Recurrent:
    ...     initial_state = [np.zeros(3, np.float32)]
    >>> initial_state_of(Recurrent())
    (array([0., 0., 0.], dtype=float32),)
    """
    given = getattr(policy, "initial_state", None)
    if callable(given):
        given = given()
    if given is None:
        return ()
    if not isinstance(given, list | tuple):
        raise SpecError(
            f"policy: initial_state: expected a list of arrays for one row, got {type(given).__name__}"
        )
    states = tuple(np.array(state) for state in given)
    for i, state in enumerate(states):
        if state.dtype.kind not in "bifuc":
            raise SpecError(
                f"policy: initial_state: {i}: expected an array of numbers, got dtype {state.dtype}"
            )
    return states


class PolicyStates:
    """The states of n environments between two steps.

    Args:
        initial: for one row, as `initial_state_of` returns them.
        rows: n.

    Attributes:
        specs: the spec of each column "state_in_0", "state_out_0", ...

    >>> states = PolicyStates([np.array(5)], 2)
    >>> states.follow({"state_out_0": np.array([6, 7])}, restarted=np.array([1]))
    >>> states.columns()
    {'state_in_0': array([6, 5])}
    """

    def __init__(self, initial: Sequence[NDArray[Any]], rows: int) -> None:
        self._initial = initial
        self._present = [np.repeat(state[None], rows, axis=0) for state in initial]
        self.specs = {
            name: ArraySpec(state.shape[1:], state.dtype)
            for i, state in enumerate(self._present)
            for name in (f"state_in_{i}", f"state_out_{i}")
        }

    def columns(self, rows: NDArray[np.integer[Any]] | None = None) -> dict[str, NDArray[Any]]:
        """Returns copies of the present states of rows (None: of all), as columns `[m, ...]`."""
        return {
            f"state_in_{i}": state.copy() if rows is None else state[rows]
            for i, state in enumerate(self._present)
        }

    def follow(self, columns: Mapping[str, NDArray[Any]], restarted: NDArray[np.integer[Any]]) -> None:
        """Keeps the states after a step.

        Args:
            columns: "state_out_0", "state_out_1", ..., `[n, ...]`; without them the states stay.
            restarted: indices of the rows whose next step begins an episode: they get the initial state.
        """
        for i, (present, initial) in enumerate(zip(self._present, self._initial, strict=True)):
            if f"state_out_{i}" in columns:
                present[...] = columns[f"state_out_{i}"]
            present[restarted] = initial

    def keep(self, columns: Mapping[str, NDArray[Any]], rows: NDArray[np.integer[Any]]) -> None:
        """Keeps the states of some rows after they acted.

        Args:
            columns: "state_out_0", "state_out_1", ..., `[m, ...]`; without them the states stay.
            rows: int64[m].
        """
        for i, present in enumerate(self._present):
            if f"state_out_{i}" in columns:
                present[rows] = columns[f"state_out_{i}"]

    def state_dict(self) -> list[NDArray[Any]]:
        """Returns copies of the present states."""
        return [state.copy() for state in self._present]

    def load_state_dict(self, states: Sequence[NDArray[Any]]) -> None:
        """Replaces the present states."""
        for present, state in zip(self._present, states, strict=True):
            present[...] = state

    def reset(self, rows: NDArray[np.integer[Any]] | None = None) -> None:
        """Sets the initial state in these rows; None: in all."""
        for present, initial in zip(self._present, self._initial, strict=True):
            present[slice(None) if rows is None else rows] = initial


def state_out_columns(state_outs: Sequence[NDArray[Any]]) -> Mapping[str, NDArray[Any]]:
    """Names the states after a step: "state_out_0", "state_out_1", ..."""
    return {f"state_out_{i}": state for i, state in enumerate(state_outs)}
