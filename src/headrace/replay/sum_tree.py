"""A wide sum tree: weights of slots, drawn in proportion, without drift.

Every node has 16 children, so a tree over a million slots has five levels and a node is two cache lines. A parent is
always the sum of its children, computed anew when one of them changes; nothing is added to or subtracted from a running
sum, so the probabilities stay exact however many updates there were and however far the weights lie apart (replay S8).

The levels lie one after the other in one array, the leaves first; `levels[i]` is where level i begins.
Source: proportional sampling of T. Schaul et al., "Prioritized Experience Replay" (2016), appendix B.2.1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headrace.store.jit import Float, Int, kernel

# A level of so many nodes is in the cache after a few draws.
_FITS_THE_CACHE = 1 << 15

WIDTH = 16
SHIFT = 4


def tree_levels(capacity: int) -> NDArray[np.int64]:
    """Where each level of a tree over slots 0..capacity-1 begins; the last entry is where the total stands."""
    sizes = [max(1, -(-capacity // WIDTH)) * WIDTH]
    while sizes[-1] > WIDTH:
        sizes.append(-(-sizes[-1] // WIDTH // WIDTH) * WIDTH)
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def new_tree(capacity: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """A tree of zeros over slots 0..capacity-1: its nodes, and where each level begins."""
    levels = tree_levels(capacity)
    return np.zeros(levels[-1] + 1, np.float64), levels


@kernel
def total(nodes: NDArray[np.float64]) -> Float:
    """The sum of all weights."""
    return nodes[-1]


@kernel
def _sum_children(nodes: NDArray[np.float64], first: Int) -> Float:
    # Four sums side by side: the additions do not wait for each other.
    a = nodes[first] + nodes[first + 1] + nodes[first + 2] + nodes[first + 3]
    b = nodes[first + 4] + nodes[first + 5] + nodes[first + 6] + nodes[first + 7]
    c = nodes[first + 8] + nodes[first + 9] + nodes[first + 10] + nodes[first + 11]
    d = nodes[first + 12] + nodes[first + 13] + nodes[first + 14] + nodes[first + 15]
    return (a + b) + (c + d)


@kernel
def refresh(
    nodes: NDArray[np.float64],
    levels: NDArray[np.int64],
    changed: NDArray[np.int64],
    count: Int,
    parents: NDArray[np.int64],
) -> None:
    """Recompute the parents of the first `count` leaves of `changed`, whose weights stand in the tree already.

    Neighbours share parents: runs of equal parents are computed once, so a run of n slots costs about n / 16 nodes.

    Args:
        parents: scratch, as long as `changed`.
    """
    for level in range(levels.shape[0] - 1):
        kept = 0
        last = -1
        for index in range(count):
            parent = (changed[index] if level == 0 else parents[index]) >> SHIFT
            if parent == last:
                continue
            last = parent
            nodes[levels[level + 1] + parent] = _sum_children(nodes, levels[level] + (parent << SHIFT))
            parents[kept] = parent
            kept += 1
        count = kept


@kernel
def rebuild(nodes: NDArray[np.float64], levels: NDArray[np.int64]) -> None:
    """Recompute every parent."""
    for level in range(levels.shape[0] - 1):
        for parent in range((levels[level + 1] - levels[level]) >> SHIFT):
            nodes[levels[level + 1] + parent] = _sum_children(nodes, levels[level] + (parent << SHIFT))


@kernel
def find(
    nodes: NDArray[np.float64],
    levels: NDArray[np.int64],
    uniforms: NDArray[np.float64],
    slots: NDArray[np.int64],
) -> None:
    """For each uniform number in [0, 1) the slot in whose share of the total it falls; overwrites the numbers.

    All draws go down level by level together, so that the memory reads of one do not wait for those of another. A slot
    of weight 0 is never found while the total is above 0 (replay S9).
    """
    count = slots.shape[0]
    remaining = uniforms
    for index in range(count):
        remaining[index] = uniforms[index] * nodes[-1]
        slots[index] = 0
    for level in range(levels.shape[0] - 2, -1, -1):
        if levels[level + 1] - levels[level] > _FITS_THE_CACHE:
            _touch(nodes, levels[level], slots)
        for index in range(count):
            first = levels[level] + (slots[index] << SHIFT)
            child, remaining[index] = _descend(nodes, first, remaining[index])
            slots[index] = (slots[index] << SHIFT) + child


@kernel
def _touch(nodes: NDArray[np.float64], start: Int, parents: NDArray[np.int64]) -> None:
    """Read the nodes that are looked at next, in a loop so short that the processor waits for many of them at once."""
    touched = 0.0
    for index in range(parents.shape[0]):
        first = start + (parents[index] << SHIFT)
        touched += nodes[first] + nodes[first + WIDTH // 2]
    if touched < 0.0:  # Never: but then nothing of this can be left out.
        nodes[0] = touched


@kernel
def _descend(nodes: NDArray[np.float64], first: Int, remaining: Float) -> tuple[Int, Float]:
    """The child in whose share `remaining` falls, and what remains there.

    First the group of four, then the child in it: comparisons are added up instead of jumped over, since a jump that
    cannot be predicted costs more than all the sums. The sums are those of `_sum_children`.
    """
    sum_0 = nodes[first] + nodes[first + 1] + nodes[first + 2] + nodes[first + 3]
    sum_1 = nodes[first + 4] + nodes[first + 5] + nodes[first + 6] + nodes[first + 7]
    sum_2 = nodes[first + 8] + nodes[first + 9] + nodes[first + 10] + nodes[first + 11]
    sum_1 += sum_0
    sum_2 += sum_1
    group = (sum_0 <= remaining) + (sum_1 <= remaining) + (sum_2 <= remaining)
    below = 0.0 if group == 0 else (sum_0 if group == 1 else (sum_1 if group == 2 else sum_2))
    remaining -= below
    place = first + 4 * group
    sum_0 = nodes[place]
    sum_1 = sum_0 + nodes[place + 1]
    sum_2 = sum_1 + nodes[place + 2]
    inner = (sum_0 <= remaining) + (sum_1 <= remaining) + (sum_2 <= remaining)
    below = 0.0 if inner == 0 else (sum_0 if inner == 1 else (sum_1 if inner == 2 else sum_2))
    child = 4 * group + inner
    if nodes[first + child] > 0.0:
        return child, remaining - below
    return _nearest(nodes, first, child), 0.0


@kernel
def _nearest(nodes: NDArray[np.float64], first: Int, child: Int) -> Int:
    """The nearest child with a weight, to the left if there is one: rounding has led past it."""
    for place in range(child - 1, -1, -1):
        if nodes[first + place] > 0.0:
            return place
    for place in range(child + 1, WIDTH):
        if nodes[first + place] > 0.0:
            return place
    return child
