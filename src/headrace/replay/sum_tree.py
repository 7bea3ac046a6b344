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
        for index in range(count):
            first = levels[level] + (slots[index] << SHIFT)
            child, remaining[index] = _descend(nodes, first, remaining[index])
            slots[index] = (slots[index] << SHIFT) + child


@kernel
def _descend(nodes: NDArray[np.float64], first: Int, remaining: Float) -> tuple[Int, Float]:
    child = 0
    below = 0.0
    reached = 0.0
    for place in range(WIDTH):
        reached += nodes[first + place]
        # Without branches: a jump that cannot be predicted costs more than the whole sum.
        goes_on = reached <= remaining
        child += goes_on
        below = reached if goes_on else below
    if child == WIDTH or nodes[first + child] <= 0.0:
        # Rounding: the sum of the children in this order is a last bit below their parent's.
        child = WIDTH - 1
        while child > 0 and nodes[first + child] <= 0.0:
            child -= 1
        return child, 0.0
    return child, remaining - below
