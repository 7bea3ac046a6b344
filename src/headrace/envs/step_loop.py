"""The loop over single environments that takes one step of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import cython
import numpy as np
from numpy.typing import NDArray

from headrace.envs.protocol import Columns, StepResult

if cython.compiled:
    from cython.cimports.headrace.kernels.row_copy import put_row
    from cython.cimports.numpy import (
        NPY_INT64,
        PyArray_CheckExact,
        PyArray_GETPTR1,
        PyArray_ISBEHAVED_RO,
        PyArray_NDIM,
        PyArray_ToScalar,
        PyArray_TYPE,
        ndarray,
    )
else:
    from headrace.kernels.kinds import Int
    from headrace.kernels.row_copy import put_row

# Actions of most discrete spaces. To make those of eight environments anew takes 0.16 us.
_SMALL = [np.int64(number) for number in range(256)]


class StepLoop:
    """Steps environments one after the other, and writes what they return.

    Compiled, because a frame that is copied drives the interpreter's data out of the caches: each line of Python
    between two frames costs several times what it does elsewhere.

    Args:
        steps: the `step` of each environment; entries may be replaced.
        result: takes rewards and flags; its arrays stay the same.
        bare: the column of an observation that is one array; None: observations are trees.

    Attributes:
        env: the environment that was stepped last.
        action: that it was given.
        ended: environments whose episodes have ended in the present step.

    >>> import numpy as np
    >>> result, out = StepResult.empty(2), {"observation": np.zeros((2, 3))}
    >>> steps = [lambda action: (np.full(3, action), 0.5, action > 1, False, {})] * 2
    >>> loop = StepLoop(steps, result, "observation")
    >>> def write(env, observation, columns, row):
    ...     columns["observation"][row] = observation
    >>> loop.run(range(2), [1.0, 2.0], out, None, write)
    [1]
    >>> result.reward, result.terminated
    (array([0.5, 0.5], dtype=float32), array([False,  True]))
    """

    def __init__(self, steps: list[Callable[[Any], Any]], result: StepResult, bare: str | None) -> None:
        self._steps = steps
        self._bare = bare
        self._count = len(steps)
        self._rewards = result.reward
        self._reward = result.reward
        self._terminated = result.terminated
        self._truncated = result.truncated
        self.env = 0
        self.action: Any = None
        self.ended: list[int] = []

    def run(
        self,
        envs: Sequence[int],
        actions: Sequence[Any] | NDArray[Any],
        out: Columns,
        rows: Sequence[int] | None,
        write: Callable[[int, Any, Columns, int], None],
        check: Callable[[int, Any], None] | None = None,
        note: Callable[[int, Any, Columns, int], None] | None = None,
    ) -> list[int]:
        """Steps environments; returns those whose episodes ended.

        Args:
            envs: that take part, rising; the flags of the others are false.
            actions: one for each of them.
            out: columns, of which environment i has row `rows[i]`. Others see the rows after `settle_rows`.
            rows: one of each environment; None: row i.
            write: writes an observation that is not an array as its column has them: of an environment, to a row.
            check: of what an environment has returned; None: it was checked before.
            note: takes the info of an environment, with its row; None: infos are not read.

        Raises:
            Exception: raised by an environment or a callback. The results of the environments before it are written.
            ValueError: not one action for each environment.
        """
        column = None if self._bare is None else out[self._bare]
        self.ended = ended = []
        for place in range(self._count):
            self._terminated[place] = False
            self._truncated[place] = False
        if len(actions) != len(envs):
            raise ValueError(f"actions: expected {len(envs)}, one for each environment, got {len(actions)}")
        for index, env in enumerate(envs):
            i: Int = env
            action = _element(actions, index)
            self.env = i
            self.action = action
            returned = self._steps[i](action)
            if check is not None:
                check(i, returned)
            observation, reward, terminated, truncated, info = returned
            row: Int = i if rows is None else rows[i]
            if isinstance(reward, float):
                self._reward[i] = reward
            else:
                self._rewards[i] = reward
            if column is None or not put_row(column, row, observation, self._count):
                write(i, observation, out, row)
            if terminated or truncated:
                self._terminated[i] = bool(terminated)
                self._truncated[i] = bool(truncated)
                ended.append(i)
            if note is not None:
                note(i, info, out, row)
        return ended


def _element(values: Any, place: Int) -> Any:
    """Does `values[place]`, for a plain number of an array in a third of the time."""
    if cython.compiled and PyArray_CheckExact(values) and PyArray_NDIM(cython.cast(ndarray, values)) == 1:
        column = cython.cast(ndarray, values)
        element = PyArray_GETPTR1(column, place)
        if PyArray_TYPE(column) == NPY_INT64 and PyArray_ISBEHAVED_RO(column):
            number: Int = cython.cast(cython.p_longlong, element)[0]
            if 0 <= number < len(_SMALL):
                return _SMALL[number]
        return PyArray_ToScalar(element, column)
    return values[place]
