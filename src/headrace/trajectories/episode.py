"""Recorded episodes as arrays: datasets read and write them, and views are applied to them."""

from __future__ import annotations

import operator
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.errors import SpecError
from headrace.trees import build, compile_tree, entries, extra_of, kind_of, leaves

Array = np.ndarray[Any, Any]


class Episode:
    """An episode of T transitions: T+1 observations, and T of the rest.

    Row t holds `observations[t]`, `actions[t]`, and the `rewards[t]`, `terminations[t]`, `truncations[t]`
    that followed the action. Both flags may be False at the end: the episode is not finished. Values keep
    their dtype and are not copied where they are arrays already.

    Args:
        observations: a tree (nested mappings, tuples, named tuples) of arrays `[T+1, ...]`; lists become
            arrays.
        actions: a tree of arrays `[T, ...]`.
        rewards: numbers `[T]`.
        terminations: `[T]` of booleans, or of numbers that are 0 or 1; only the last may be set.
        truncations: as `terminations`.
        infos: nested mappings of arrays with T+1 or T rows each; None is the same as no entries.
        extras: as `infos`: data that a policy or a writer added to each step.
        seed: of the environment's reset.
        options: of the environment's reset.
        id: the episode's name or number in its dataset.

    Raises:
        SpecError: a wrong length (with the path, the length expected and the one found), a flag before the
            last step, or a leaf that is not an array of numbers, booleans or strings.

    >>> episode = Episode([0.0, 1.0, 2.0], [1, 0], [0.5, 2], [False, True], [False, False])
    >>> len(episode), episode.terminated, episode.truncated, episode.return_
    (2, True, False, 2.5)
    >>> episode.fragment(1, 2).stop
    2
    """

    __hash__ = None  # type: ignore[assignment]  # equal by value, and the arrays may be written to

    def __init__(
        self,
        observations: Any,
        actions: Any,
        rewards: Any,
        terminations: Any,
        truncations: Any,
        infos: Mapping[str, Any] | None = None,
        extras: Mapping[str, Any] | None = None,
        *,
        seed: int | None = None,
        options: Mapping[str, Any] | None = None,
        id: int | str | None = None,  # noqa: A002 - the public name
    ) -> None:
        self.rewards = _rewards(rewards)
        self.observations, observed = _convert(observations, "observations")
        self.actions, acted = _convert(actions, "actions")
        self.terminations = _flags(terminations, "terminations")
        self.truncations = _flags(truncations, "truncations")
        columns = {
            "rewards": self.rewards,
            "terminations": self.terminations,
            "truncations": self.truncations,
        }
        steps = agreed_steps(observed.values(), acted.values(), *map(len, columns.values()))
        _check_observations(observed, steps)
        _check_rows({**acted, **{name: len(array) for name, array in columns.items()}}, steps)
        for name in ("terminations", "truncations"):
            _check_only_last(columns[name], name)
        self.infos = _mapping(infos, "infos", steps)
        self.extras = _mapping(extras, "extras", steps)
        self.seed = seed
        self.options = options
        self.id = id

    def __len__(self) -> int:
        """Returns T, the number of transitions."""
        return len(self.rewards)

    @property
    def terminated(self) -> bool:
        """Whether the last step ended the episode for good: its value is 0 from there."""
        return bool(self.terminations[-1])

    @property
    def truncated(self) -> bool:
        """Whether the last step cut the episode off: its value goes on from the last observation."""
        return bool(self.truncations[-1])

    @property
    def return_(self) -> float:
        """The undiscounted sum of the rewards."""
        return float(np.sum(self.rewards, dtype=np.float64))

    def fragment(self, start: int, stop: int) -> Fragment:
        """Cuts out the rows `start <= t < stop`; look-back still sees the rows before `start`.

        Raises:
            ValueError: not `0 <= start <= stop <= T`.
            TypeError: a bound that is not an integer.
        """
        # Rules: views V12
        start, stop = operator.index(start), operator.index(stop)
        if not 0 <= start <= stop <= len(self):
            raise ValueError(
                f"fragment: expected 0 <= start <= stop <= {len(self)}, got start={start}, stop={stop}"
            )
        return Fragment(self, start, stop)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Episode):
            return NotImplemented
        return all(_equal(getattr(self, name), getattr(other, name)) for name in _ATTRIBUTES)

    def __repr__(self) -> str:
        end = " ".join(name for name in ("terminated", "truncated") if getattr(self, name)) or "unfinished"
        name = "" if self.id is None else f"id={self.id!r}, "
        return f"Episode({name}{len(self)} steps, {end}, return {self.return_:g})"


@dataclass(frozen=True, slots=True)
class Fragment:
    """The rows `start <= t < stop` of an episode, with the whole episode behind them."""

    episode: Episode
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


_ATTRIBUTES = (
    "observations", "actions", "rewards", "terminations", "truncations",
    "infos", "extras", "seed", "options", "id",
)  # fmt: skip


def agreed_steps(observations: Iterable[int], actions: Iterable[int], *others: int) -> int:
    """Returns the number of transitions that most parts of an episode agree on, so that an error names the other part.

    Args:
        observations: rows of each array of observations; a part whose arrays disagree has no vote.
        actions: rows of each array of actions.
        others: rows of the rewards, which decide a tie, and of the flags.

    >>> agreed_steps([4, 4], [3], 2, 3, 3)
    3
    """
    votes = [*others]
    votes += [rows - 1 for rows in set(observations)] if len(set(observations)) == 1 else []
    votes += set(actions) if len(set(actions)) == 1 else []
    return Counter(votes).most_common(1)[0][0]


def _check_rows(rows: Mapping[str, int], *expected: int) -> None:
    """Refuses an array that has none of these numbers of rows; `rows` is by path."""
    for path, count in rows.items():
        if count not in expected:
            raise SpecError(f"{path}: expected {' or '.join(map(str, expected))} rows, got {count}")


def _check_observations(rows: Mapping[str, int], steps: int) -> None:
    for path, count in rows.items():
        if count == steps:
            raise SpecError(
                f"{path}: expected {steps + 1} rows, got {count}: an episode of T={steps} transitions has T+1 "
                "observations; append the last observation, the one after the last action"
            )
    _check_rows(rows, steps + 1)


def _convert(tree: Any, path: str, least: int = 1) -> tuple[Any, dict[str, int]]:
    """Returns the tree as arrays, and the number of rows of each by its path."""
    # A list or a deque is an array here, never a container.
    node = compile_tree(tree, lambda value: isinstance(value, list | deque | np.ndarray), path)
    arrays = {leaf.path: _array(leaf.value, leaf.path) for leaf in leaves(node)}
    if len(arrays) < least:
        raise SpecError(f"{path}: expected at least one array, got {tree!r:.80}")
    return build(node, arrays), {name: len(array) for name, array in arrays.items()}


def _array(value: Any, path: str) -> Array:
    try:
        array = np.asarray(value)
    except Exception as error:
        # A ragged list, a tensor on another device: each library has its own error.
        raise SpecError(f"{path}: expected an array, got {type(value).__name__}: {error}") from error
    if array.dtype.kind not in "biufcUS":
        raise SpecError(
            f"{path}: expected numbers, booleans or strings, got {type(value).__name__} of {array.dtype}"
        )
    if array.ndim == 0:
        raise SpecError(f"{path}: expected an array with a row for each step, got one value: {value!r:.80}")
    return array


def _rewards(value: Any) -> Array:
    array = _array(value, "rewards")
    if array.dtype.kind not in "biuf" or array.ndim != 1:
        raise SpecError(f"rewards: expected real numbers of shape [T], got {array.dtype}{list(array.shape)}")
    if len(array) == 0:
        raise SpecError("rewards: expected at least 1 row, got 0: an episode has at least one transition")
    return array


def _flags(value: Any, path: str) -> Array:
    array = _array(value, path)
    if array.ndim != 1 or (array.dtype != bool and not np.isin(array, (0, 1)).all()):
        raise SpecError(
            f"{path}: expected booleans of shape [{len(array)}], got {array.dtype}{list(array.shape)}"
        )
    return array.astype(bool, copy=False)


def _check_only_last(flags: Array, path: str) -> None:
    early = np.flatnonzero(flags[:-1])
    if early.size:
        raise SpecError(
            f"{path}: expected a flag at the last step ({len(flags) - 1}) only, got one at step {early[0]}; "
            "make an episode of each part"
        )


def _mapping(value: Mapping[str, Any] | None, path: str, steps: int) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise SpecError(f"{path}: expected a mapping of arrays, got {type(value).__name__}")
    converted, rows = _convert(value, path, least=0)
    _check_rows(rows, steps + 1, steps)
    return dict(converted)


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return _equal_arrays(one, other)
    kind = kind_of(type(one))
    if kind not in ("", "none"):
        return _equal_containers(one, other, kind)
    # A number of NumPy compares itself with each entry of a tuple.
    if kind_of(type(other)) not in ("", "none"):
        return False
    return one is other or _equal_values(one, other)


def _equal_values(one: Any, other: Any) -> bool:
    try:
        # NaN in seeds and options is equal to itself, as it is in the arrays.
        return bool(one == other) or bool(one != one and other != other)
    except Exception:  # A user's value may raise any error, for example a tensor of several numbers.
        return False


def _equal_containers(one: Any, other: Any, kind: str) -> bool:
    if kind_of(type(other)) != kind:
        return False
    # The class of a record that came out of a file may be another one of the same name.
    if kind in ("namedtuple", "dataclass") and type(one).__name__ != type(other).__name__:
        return False
    if kind == "node" and (
        type(one) is not type(other) or not _equal(extra_of(one, kind), extra_of(other, kind))
    ):
        return False
    ours, theirs = entries(one, kind), entries(other, kind)
    return ours.keys() == theirs.keys() and all(_equal(ours[name], theirs[name]) for name in ours)


def _equal_arrays(one: Any, other: Any) -> bool:
    if not isinstance(one, np.ndarray) or not isinstance(other, np.ndarray) or one.dtype != other.dtype:
        return False
    return bool(np.array_equal(one, other, equal_nan=one.dtype.kind in "fc"))
