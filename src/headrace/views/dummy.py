"""Batches of random numbers in the form of real ones."""

# Rules: views D5

from __future__ import annotations

import copy
from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.arrays import ArraySpec
from headrace.batches.joining import joined
from headrace.batches.sample_batch import SampleBatch
from headrace.checks import check_count
from headrace.spec import Signature
from headrace.trees import map_leaves
from headrace.views.view import View, check_views

_SCALAR = ArraySpec((), np.float32)


def dummy_batch(views: Mapping[str, View], size: int = 4, *, seed: int = 0) -> SampleBatch:
    """Makes a batch with the columns of views, of random numbers.

    Args:
        views: maps names to views. A view's `space` tells the shape and dtype of a row, and the numbers are drawn from
            it; without it rows are float32 scalars. A mask is True.
        size: number of rows. Views with `every=k` have one row for each sequence of k rows.
        seed: of the random numbers.

    Raises:
        TypeError: `views` is not a dict of views; `size` is not an integer.
        ValueError: size < 1; views with different `every` above 1.

    >>> from gymnasium.spaces import Box
    >>> batch = dummy_batch({"stack": View("observation", Box(0, 1, (8, 8)), shift="-3:0"), "reward": View()})
    >>> batch["stack"].shape, batch["stack"].dtype, batch["reward"].shape
    ((4, 4, 8, 8), dtype('float32'), (4,))
    """
    check_views(views)
    size = check_count("size", size, 1)
    longest = _sequence_length(views)
    random = np.random.default_rng(seed)
    columns: dict[str, Any] = {}
    for name, view in views.items():
        rows = -(-size // longest) if view.every > 1 else size
        leading = (rows, *_axes_of(view))
        columns[name] = _drawn(view.space, leading, random)
        if view.mask:
            columns[f"{name}_mask"] = np.ones(leading, np.bool_)
    if longest == 1:
        return SampleBatch(columns)
    lengths = [min(longest, size - begin) for begin in range(0, size, longest)]
    return SampleBatch(columns, seq_lens=lengths, max_seq_len=longest)


def _sequence_length(views: Mapping[str, View]) -> int:
    lengths = sorted({view.every for view in views.values()} - {1})
    if len(lengths) > 1:
        raise ValueError(f"every: expected one length of sequences above 1 in all views, got {lengths}")
    return lengths[0] if lengths else 1


def _axes_of(view: View) -> tuple[int, ...]:
    """Returns the axes between the rows and those of the source: of agents, then of the window."""
    agents = (len(view.agent),) if isinstance(view.agent, list | tuple) else ()
    return (*agents, len(view.offsets)) if view.has_window else agents


def _drawn(space: Any, leading: tuple[int, ...], random: np.random.Generator) -> Any:
    """Returns a tree of arrays of elements of a space, with these leading axes."""
    if space is None or isinstance(space, ArraySpec):
        return _drawn_numbers(space or _SCALAR, leading, random)
    if isinstance(space, Signature):
        return map_leaves(lambda spec: _drawn_numbers(spec, leading, random), space.tree)
    # The space of the user keeps its random state.
    own = copy.deepcopy(space)
    own.seed(int(random.integers(1 << 31)))
    rows = [map_leaves(lambda leaf: np.asarray(leaf)[np.newaxis], own.sample()) for _ in range(prod(leading))]
    return map_leaves(lambda leaf: leaf.reshape(*leading, *leaf.shape[1:]), joined("space", rows))


def _drawn_numbers(spec: ArraySpec, leading: tuple[int, ...], random: np.random.Generator) -> NDArray[Any]:
    numbers = random.standard_normal(leading + spec.shape)
    if spec.dtype.kind in "fc":
        return numbers.astype(spec.dtype)
    return (numbers > 0).astype(spec.dtype)
