"""Random actions for n environments.

Each environment has its own generator, seeded with its seed, and draws many actions at once. So its actions depend only
on its seed and its number of transitions. They do not depend on the number of environments, or on the worker that steps
them.
"""

# Rules: collectors CS4, CS5

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from headrace.envs.protocol import Indices
from headrace.spec import Signature

Draw = Callable[[np.random.Generator, int], NDArray[Any]]

_LONGEST_BLOCK = 256
_BLOCK_BYTES = 1 << 14
# The environment's own generator starts from the seed alone; with this the actions do not repeat its numbers.
_STREAM = 0x6163746E


class RandomActions:
    """Uniform random actions as `space.sample` draws them, for n environments, with one generator each.

    Args:
        space: Discrete, Box, MultiDiscrete, MultiBinary, Dict or Tuple. Like in gymnasium, a coordinate of a Box with
            one bound is exponential from that bound, and without bounds it is normal.
        num_envs: n.
        seeds: one per environment; None takes them from the operating system.

    Raises:
        SpecError: another space; the message has its path.

    >>> actions = RandomActions(spaces.Discrete(5), 3, seeds=[1, 2, 3])
    >>> first = actions.draw()["action"]
    >>> first.shape, bool(((first >= 0) & (first < 5)).all())
    ((3,), True)
    """

    def __init__(self, space: Any, num_envs: int, seeds: Sequence[int] | None = None) -> None:
        signature = Signature({"action": Signature.of_space(space).tree})
        leaf_spaces = dict(_leaf_spaces(space, "action"))
        self._specs = signature.columns
        self._draws = {name: _draw_of(leaf_spaces[name]) for name in self._specs}
        self._num_envs = num_envs
        # The length of a block may depend on the space, never on the number of environments: it decides how the
        # numbers of a generator are split among the columns.
        self._block = max(1, min(_LONGEST_BLOCK, _BLOCK_BYTES // max(1, signature.nbytes)))
        self.seed(seeds)

    def seed(self, seeds: Sequence[int] | None) -> None:
        """Restarts all generators, from one seed per environment."""
        if seeds is not None and len(seeds) != self._num_envs:
            raise ValueError(f"seeds: expected {self._num_envs}, one for each environment, got {len(seeds)}")
        sequences = (
            np.random.SeedSequence().spawn(self._num_envs)
            if seeds is None
            else [np.random.SeedSequence([int(seed), _STREAM]) for seed in seeds]
        )
        self._generators = [np.random.Generator(np.random.PCG64(sequence)) for sequence in sequences]
        # While all environments have taken equally many actions one cursor serves them; otherwise each has its own: the
        # row of its next action in the buffers, of which each environment has one in `num_envs` rows.
        self._cursor = self._block
        self._cursors: NDArray[np.intp] | None = None
        # Draws for which no environment can run out of actions: to look at all cursors takes as long as a draw.
        self._spare = 0
        self._buffers: dict[str, NDArray[Any]] = {}

    def state_dict(self) -> dict[str, Any]:
        """Returns the generators, the actions that are drawn already, and the next of them."""
        return {
            "generators": [generator.bit_generator.state for generator in self._generators],
            "drawn": {name: buffer.copy() for name, buffer in self._buffers.items()},
            "cursor": self._cursor,
            "cursors": None if self._cursors is None else self._cursors // self._num_envs,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on with the actions that follow a state of `state_dict`."""
        for generator, saved in zip(self._generators, state["generators"], strict=True):
            generator.bit_generator.state = saved
        self._buffers = {name: np.array(buffer) for name, buffer in state["drawn"].items()}
        self._cut_rows()
        self._cursor = int(state["cursor"])
        cursors = state["cursors"]
        self._cursors = None if cursors is None else self._rows_of(np.array(cursors, np.intp))
        self._spare = 0

    def draw(self, active: Indices | None = None) -> dict[str, NDArray[Any]]:
        """Returns the next action of each environment, as columns `[n, ...]` named "action" or "action/...".

        Args:
            active: indices of the environments that will act; None for all. The others use up no action: their rows
                hold a valid action that will come again.

        Returns:
            Arrays that are never overwritten.
        """
        if active is None and self._cursors is None:
            if self._cursor == self._block:
                self._refill()
            row = self._cursor
            self._cursor = row + 1
            return self._rows[row]
        return self._draw_each(active)

    def _refill(self) -> None:
        # New arrays: those handed out before may still be held.
        self._buffers = {
            name: np.empty((self._block, self._num_envs, *spec.shape), spec.dtype)
            for name, spec in self._specs.items()
        }
        for i in range(self._num_envs):
            self._refill_env(i)
        self._cut_rows()
        self._cursor = 0

    def _cut_rows(self) -> None:
        """Makes the rows of the present buffers."""
        self._rows: list[dict[str, NDArray[Any]]] = [{} for _ in range(self._block)]
        self._flat: dict[str, NDArray[Any]] = {}
        for name, buffer in self._buffers.items():
            self._flat[name] = buffer.reshape(-1, *buffer.shape[2:])
            for row, actions in zip(self._rows, buffer, strict=True):
                row[name] = actions

    def _refill_env(self, i: int) -> None:
        for name, draw in self._draws.items():
            self._buffers[name][:, i] = draw(self._generators[i], self._block)

    def draw_for(self, envs: Indices) -> dict[str, NDArray[Any]]:
        """Returns the next action of each of these environments, as columns `[m, ...]`.

        Args:
            envs: int64[m], each once.
        """
        cursors = self._own_cursors()
        rows = cursors[envs]
        cursors[envs] = rows + self._num_envs
        return {name: buffer.take(rows, 0) for name, buffer in self._flat.items()}

    def _draw_each(self, active: Indices | None) -> dict[str, NDArray[Any]]:
        cursors = self._own_cursors()
        actions = {name: buffer.take(cursors, 0) for name, buffer in self._flat.items()}
        cursors[slice(None) if active is None else active] += self._num_envs
        return actions

    def _rows_of(self, cursors: Any) -> NDArray[np.intp]:
        """Returns the rows of the buffers at which environments have their actions of these numbers."""
        rows: NDArray[np.intp] = cursors * self._num_envs + np.arange(self._num_envs)
        return rows

    def _own_cursors(self) -> NDArray[np.intp]:
        """Returns the cursors of the environments. Each has an action in the buffers; the caller uses at most one."""
        if self._cursors is None:
            if self._cursor == self._block:
                self._refill()
            # From here on buffers are refilled in place, and views of the present ones were handed out.
            self._buffers = {name: buffer.copy() for name, buffer in self._buffers.items()}
            self._cut_rows()
            self._cursors = self._rows_of(self._cursor)
        if self._spare == 0:
            for i in (self._cursors >= self._block * self._num_envs).nonzero()[0].tolist():
                self._refill_env(i)
                self._cursors[i] = i
            self._spare = self._block - int(self._cursors.max()) // self._num_envs
        self._spare -= 1
        return self._cursors


def _leaf_spaces(space: Any, path: str) -> list[tuple[str, Any]]:
    children: Any = ()
    if isinstance(space, spaces.Dict):
        children = space.spaces.items()
    elif isinstance(space, spaces.Tuple):
        children = enumerate(space.spaces)
    else:
        return [(path, space)]
    return [leaf for key, child in children for leaf in _leaf_spaces(child, f"{path}/{key}")]


def _draw_of(space: Any) -> Draw:
    if isinstance(space, spaces.Discrete):
        return _integers(space.start, space.start + space.n - 1, (), space.dtype)
    if isinstance(space, spaces.MultiDiscrete):
        return _integers(space.start, space.start + space.nvec - 1, space.shape, space.dtype)
    if isinstance(space, spaces.MultiBinary):
        return _integers(0, 1, space.shape, space.dtype)
    if space.dtype.kind != "f" and space.bounded_below.all() and space.bounded_above.all():
        return _integers(space.low, space.high, space.shape, space.dtype)
    return _box(space)


def _integers(low: Any, high: Any, shape: tuple[int, ...], dtype: Any) -> Draw:
    def draw(generator: np.random.Generator, count: int) -> NDArray[Any]:
        drawn = generator.integers(low, high, size=(count, *shape), dtype=dtype, endpoint=True)
        return cast("NDArray[Any]", drawn)

    return draw


def _box(space: Any) -> Draw:
    """Returns a draw of each coordinate by the form of its interval, as in gymnasium's `Box.sample`."""
    integer = space.dtype.kind != "f"
    low, high = space.low.astype(np.float64), space.high.astype(np.float64) + integer
    below, above = space.bounded_below, space.bounded_above
    forms = (
        (~below & ~above, lambda _, g, size: g.standard_normal(size)),
        (below & ~above, lambda w, g, size: low[w] + g.standard_exponential(size)),
        (~below & above, lambda w, g, size: high[w] - g.standard_exponential(size)),
        (below & above, lambda w, g, size: _between(low[w], high[w], g.random(size))),
    )

    def draw(generator: np.random.Generator, count: int) -> NDArray[Any]:
        sample = np.empty((count, *space.shape))
        for where, values in forms:
            if where.any():
                sample[:, where] = values(where, generator, (count, int(where.sum())))
        return _as_integers(sample, space.dtype) if integer else sample.astype(space.dtype)

    return draw


def _between(low: NDArray[Any], high: NDArray[Any], u: NDArray[Any]) -> NDArray[Any]:
    # Not low + u * (high - low): the difference of two floats near their limits is infinite.
    return cast("NDArray[Any]", low * (1 - u) + high * u)


def _as_integers(sample: NDArray[Any], dtype: Any) -> NDArray[Any]:
    limits = np.iinfo(dtype)
    # The largest 64-bit integers round up to floats that no longer fit.
    top = np.nextafter(float(limits.max), 0) if float(limits.max) > limits.max else limits.max
    return cast("NDArray[Any]", np.floor(sample).clip(limits.min, top).astype(dtype))
