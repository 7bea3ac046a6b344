"""A batch of steps as columns: slices, sequences, padding."""

from __future__ import annotations

import copy
import operator
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from dataclasses import replace
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from headrace.batches.conversion import to_jax, to_torch
from headrace.batches.joining import check_same_names, joined
from headrace.batches.pytree import PytreeNode
from headrace.batches.row_counts import (
    STATE_IN,
    as_column,
    as_columns,
    as_lengths,
    check_equal_rows,
    one_row_a_sequence,
    rows_of,
)
from headrace.batches.sequences import Lengths, Sequences, chopped, groups, starts_of_runs
from headrace.batches.slicing import (
    itself,
    join_sequences,
    map_columns,
    pad,
    remove_padding,
    slice_rows,
    slice_sequences,
)
from headrace.checks import check_count, check_kind, check_mapping
from headrace.trees import at_path, map_leaves


class SampleBatch(MutableMapping[str, Any]):
    """Rows of steps as a mutable mapping of columns to arrays, or trees of arrays, `[rows, ...]`.

    A name reads a column, and a path such as "observation/camera" one leaf of a tree. `batch[a:b]` is the batch of
    these rows, without a copy. `batch["done"]` is `terminated | truncated` where no such column is stored.

    With `seq_lens` the rows are sequences, one after another. `state_in_*` columns, and views with `every`, then have
    one row a sequence. Sequences can be padded to equal lengths: `mask` is True on real rows, and `count` counts these.

    A pytree for optree, and for JAX in a program that uses it. Writing to an array of a slice writes to the batch.

    Args:
        columns: name to array or tree of arrays; lists become arrays. May hold "seq_lens". Of a `SampleBatch` the
            sequences and their padding are taken too, if `seq_lens` gives no others; arrays are not copied.
        seq_lens: int[S], lengths >= 1 of the sequences; their sum is the number of rows.
        max_seq_len: the longest sequence that the maker of the batch allowed; None: that of the batch whose columns are
            given, if any. It cuts nothing.

    Raises:
        SpecError: a column has another number of rows; a leaf is not an array of numbers.
        TypeError: `columns` is not a mapping.
        ValueError: `seq_lens` is given twice.

    >>> batch = SampleBatch({"observation": [10, 11, 12], "reward": [1.0, 2.0, 3.0]}, seq_lens=[1, 2])
    >>> batch.count, batch[1:]["observation"], batch[1:].seq_lens
    (3, array([11, 12]), array([2]))
    >>> batch.right_zero_pad(2)["observation"], batch.right_zero_pad(2).mask
    (array([10,  0, 11, 12]), array([ True, False,  True,  True]))
    """

    # Rules: views-rollouts B1 to B8

    OBS = "observation"
    ACTIONS = "action"
    REWARDS = "reward"
    TERMINATEDS = "terminated"
    TRUNCATEDS = "truncated"
    DONES = "done"
    NEXT_OBS = "next_observation"
    PREV_ACTIONS = "prev_action"
    PREV_REWARDS = "prev_reward"
    EPS_ID = "episode_id"
    T = "t"
    AGENT_INDEX = "agent_index"
    ENV_ID = "env_id"
    SEQ_LENS = "seq_lens"

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __init__(
        self, columns: Mapping[str, Any], *, seq_lens: Any = None, max_seq_len: int | None = None
    ) -> None:
        check_mapping("columns", columns, "arrays")
        given = dict(columns)
        if self.SEQ_LENS in given:
            if seq_lens is not None:
                raise ValueError("seq_lens: expected it once, got it as an argument and as a column")
            seq_lens = given.pop(self.SEQ_LENS)
        self._columns = as_columns(given)
        self._sequences = _sequences_of(self._columns, seq_lens, columns)
        if max_seq_len is None and isinstance(columns, SampleBatch):
            max_seq_len = columns.max_seq_len
        self.max_seq_len: int | None = (
            None if max_seq_len is None else check_count("max_seq_len", max_seq_len, 1)
        )
        _NODE.tell_jax()

    @property
    def data(self) -> dict[str, Any]:
        """The columns as a plain dict, which is the batch's own."""
        return self._columns

    @property
    def seq_lens(self) -> Any:
        """int64[S], real rows of each sequence; None for rows that are not sequences."""
        return None if self._sequences is None else self._sequences.lengths

    @property
    def count(self) -> int:
        """Number of real rows."""
        return rows_of(self._columns) if self._sequences is None else int(self._sequences.lengths.sum())

    @property
    def mask(self) -> Any:
        """bool[rows, padding included]: True on real rows."""
        return np.ones(self.count, bool) if self._sequences is None else self._sequences.mask

    def env_steps(self) -> int:
        """Returns the number of rows."""
        return self.count

    def agent_steps(self) -> int:
        """Returns the number of rows."""
        return self.count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, key: str | slice) -> Any:
        if isinstance(key, slice):
            return self._sliced(key)
        if not isinstance(key, str):
            raise TypeError(f"batch[...]: expected the name of a column or a slice of rows, got {key!r}")
        if key in self._columns:
            return self._columns[key]
        if key == self.SEQ_LENS and self._sequences is not None:
            return self._sequences.lengths
        if key == self.DONES and self.TERMINATEDS in self._columns and self.TRUNCATEDS in self._columns:
            return self[self.TERMINATEDS] | self[self.TRUNCATEDS]
        return at_path(self._columns, key)

    def __setitem__(self, name: str, column: Any) -> None:
        if name == self.SEQ_LENS:
            self._sequences = _checked_sequences(self._columns, as_lengths(column))
            return
        column = as_column(name, column)
        sequences = self._sequences
        if sequences is None:
            check_equal_rows({**self._columns, name: column})
        else:
            found = one_row_a_sequence({name: column}, sequences.stored_rows, len(sequences.lengths))
            self._sequences = replace(sequences, one_row=sequences.one_row - {name} | found)
        self._columns[name] = column

    def __delitem__(self, name: str) -> None:
        del self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __contains__(self, name: object) -> bool:
        return name in self._columns or (name == self.SEQ_LENS and self._sequences is not None)

    def timeslices(self, size: int) -> list[Self]:
        """Returns consecutive batches of `size` rows, the last one shorter; no copy.

        With `seq_lens`, of whole sequences: as many as have at most `size` rows together, at least one.

        Raises:
            ValueError: size < 1.
        """
        size = check_count("size", size, 1)
        if self._sequences is None:
            return [self[begin : begin + size] for begin in range(0, self.count, size)]
        parts = groups(self._sequences.lengths, size)
        return [self._like_this(*slice_sequences(self._columns, self._sequences, *part)) for part in parts]

    def split_by_episode(self) -> list[Self]:
        """Returns the runs of rows of one episode and agent, in order; no copy.

        A run ends where `episode_id` or `agent_index` changes. Without `episode_id` it ends after each row that is
        terminated or truncated; rows after the last such row are a run too.
        """
        batch = self.without_padding()
        bounds = [*batch._starts((self.EPS_ID, self.AGENT_INDEX)).tolist(), batch.count]
        return [batch[begin:end] for begin, end in pairwise(bounds)]

    def chop(self, max_seq_len: int, *, by_sequence: Iterable[str] = ()) -> Self:
        """Returns the rows as sequences of at most `max_seq_len` rows; no copy of row columns.

        A sequence begins at each change of `episode_id`, `agent_index` or `fragment_id`. Without `episode_id` one also
        begins after each row that is terminated or truncated. `state_in_*` columns keep the first row of each sequence.

        Args:
            max_seq_len: rows of the longest sequence.
            by_sequence: other columns that keep only this row, such as views with `every=max_seq_len`.

        Raises:
            ValueError: max_seq_len < 1; the rows are sequences already.
        """
        longest = check_count("max_seq_len", max_seq_len, 1)
        if self._sequences is not None:
            raise ValueError("chop: expected rows without seq_lens, got sequences already")
        runs = self._starts((self.EPS_ID, self.AGENT_INDEX, "fragment_id"))
        starts = chopped(runs, self.count, longest)
        one_row = frozenset(name for name in self._columns if name.startswith(STATE_IN)).union(by_sequence)
        sequences = Sequences(np.diff(starts, append=self.count), one_row=one_row)
        columns = map_columns(self._columns, one_row, itself, lambda leaf: leaf[starts])
        result = self._like_this(columns, sequences)
        result.max_seq_len = longest
        return result

    def right_zero_pad(self, rows: int) -> Self:
        """Returns a batch with each sequence padded with zeros to `rows` rows; dtypes stay.

        Raises:
            ValueError: there is no `seq_lens`; a sequence is longer; the batch is padded to another length.

        >>> SampleBatch({"x": [1, 2, 3]}, seq_lens=[1, 2]).right_zero_pad(5)["x"]
        array([1, 0, 0, 0, 0, 2, 3, 0, 0, 0])
        """
        rows = check_count("right_zero_pad", rows, 1)
        return self._like_this(*pad(self._columns, self._sequences, rows))

    def without_padding(self) -> Self:
        """Returns the real rows of a padded batch, copied; without padding, the same columns."""
        return self._like_this(*remove_padding(self._columns, self._sequences))

    @classmethod
    def concat(cls, batches: Iterable[SampleBatch]) -> SampleBatch:
        """Returns the rows of all batches, in order, in new arrays; batches without rows are ignored.

        Raises:
            SpecError: columns differ, or their trees or the shapes of their rows; the message has the columns.
            TypeError: not batches.
            ValueError: only some batches have `seq_lens`, or they are padded to different lengths.
        """
        every = [check_kind("concat", batch, SampleBatch) for batch in batches]
        filled = [batch for batch in every if batch.count] or every[:1]
        if not filled:
            return cls({})
        check_same_names([batch._columns for batch in filled])
        columns = {name: joined(name, [batch._columns[name] for batch in filled]) for name in filled[0]}
        sequences = join_sequences([batch._sequences for batch in filled])
        result = filled[0]._joined_with(filled[1:], columns, sequences)
        limits = [batch.max_seq_len for batch in filled if batch.max_seq_len is not None]
        result.max_seq_len = max(limits, default=None)
        return result

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yields each real row as a dict; columns with one row a sequence are left out."""
        batch = self.without_padding()
        one_row = frozenset() if batch._sequences is None else batch._sequences.one_row
        columns = {name: tree for name, tree in batch._columns.items() if name not in one_row}
        for row in range(batch.count):
            yield map_leaves(operator.itemgetter(row), columns)

    def __copy__(self) -> Self:
        return self._like_this(self._columns.copy(), self._sequences)

    def copy(self) -> Self:
        """Returns a deep copy."""
        return self._like_this(map_leaves(copy.deepcopy, self._columns), copy.deepcopy(self._sequences))

    def shuffle(self, seed: int | np.random.Generator | None = None) -> Self:
        """Puts the rows into a random order, in new arrays, and returns the batch itself.

        Raises:
            ValueError: the rows are sequences.
        """
        if self._sequences is not None:
            raise ValueError(
                "shuffle: expected rows without seq_lens, got sequences, whose order has a meaning"
            )
        order = np.random.default_rng(seed).permutation(self.count)
        self._columns.update(map_columns(self._columns, (), lambda leaf: leaf[order]))
        return self

    def numpy(self) -> dict[str, Any]:
        """Plain nested dicts of NumPy arrays, `seq_lens` included; no copy."""
        return self._with_lengths()

    def torch(self) -> dict[str, Any]:
        """Plain nested dicts of torch tensors over the same memory, `seq_lens` included."""
        return dict(to_torch(self._with_lengths()))

    def jax(self) -> dict[str, Any]:
        """Plain nested dicts of JAX arrays, `seq_lens` included."""
        return dict(to_jax(self._with_lengths()))

    def __repr__(self) -> str:
        told = f"{self.count} rows"
        if self._sequences is not None:
            told += f" in {len(self._sequences.lengths)} sequences"
            told += "" if self._sequences.padded_to is None else f" padded to {self._sequences.padded_to}"
        return f"<{type(self).__name__} {told} of {', '.join(self._columns)}>"

    def _like_this(self, columns: dict[str, Any], sequences: Sequences | None) -> Self:
        """Returns a batch of these columns, unchecked. Every batch that is made of another is made here."""
        result = object.__new__(type(self))
        result._columns, result._sequences, result.max_seq_len = columns, sequences, self.max_seq_len
        return result

    def _joined_with(
        self,
        others: list[SampleBatch],  # noqa: ARG002 - for a subclass
        columns: dict[str, Any],
        sequences: Sequences | None,
    ) -> Self:
        """Returns a batch of these columns, which are those of this batch and of others."""
        return self._like_this(columns, sequences)

    def _sliced(self, key: slice) -> Self:
        if key.step not in (None, 1):
            raise ValueError(f"batch[a:b]: expected no step other than 1, got {key.step!r}")
        start, stop, _ = key.indices(self.count)
        return self._like_this(*slice_rows(self._columns, self._sequences, start, max(start, stop)))

    def _starts(self, keys: Iterable[str]) -> NDArray[np.int64]:
        """Returns the rows where one of these columns changes, or, without episode ids, an episode has ended."""
        columns = self._columns
        found = [np.asarray(columns[key]) for key in keys if key in columns]
        flags = [] if self.EPS_ID in columns else [self.TERMINATEDS, self.TRUNCATEDS]
        ends = [np.asarray(columns[flag], bool) for flag in flags if flag in columns]
        return starts_of_runs(self.count, found, np.logical_or.reduce(ends) if ends else None)

    def _with_lengths(self) -> dict[str, Any]:
        lengths = {} if self._sequences is None else {self.SEQ_LENS: self._sequences.lengths}
        return {**self._columns, **lengths}


def _sequences_of(columns: Mapping[str, Any], seq_lens: Any, given: Mapping[str, Any]) -> Sequences | None:
    """Returns the sequences of a new batch, whose columns are checked.

    Args:
        columns: of the batch.
        seq_lens: None: those of `given`, if it is a batch.
        given: what the columns were made of.
    """
    if seq_lens is not None:
        return _checked_sequences(columns, as_lengths(seq_lens))
    sequences = given._sequences if isinstance(given, SampleBatch) else None
    if sequences is None:
        check_equal_rows(columns)
    else:
        one_row_a_sequence(columns, sequences.stored_rows, len(sequences.lengths))
    return sequences


def _checked_sequences(columns: Mapping[str, Any], lengths: Lengths) -> Sequences:
    one_row = one_row_a_sequence(columns, int(lengths.sum()), len(lengths))
    return Sequences(lengths, one_row=one_row)


def flatten(batch: SampleBatch) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Returns the columns and the lengths of a batch, and the rest of it."""
    sequences = batch._sequences
    form = None if sequences is None else replace(sequences, lengths=None)
    return (*batch._columns.values(), batch.seq_lens), (type(batch), tuple(batch), form, batch.max_seq_len)


def unflatten(about: tuple[Any, ...], children: tuple[Any, ...]) -> SampleBatch:
    """Builds a batch from what `flatten` returned, with any objects as its columns."""
    kind, names, form, max_seq_len = about
    *trees, lengths = children
    batch: SampleBatch = object.__new__(kind)
    batch._columns = dict(zip(names, trees, strict=True))
    batch._sequences = None if form is None else replace(form, lengths=lengths)
    batch.max_seq_len = max_seq_len
    return batch


_NODE = PytreeNode(SampleBatch, flatten, unflatten)
