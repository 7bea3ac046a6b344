"""A wide sum tree: weights of slots, drawn in proportion, without drift.

Every node has 16 children, so a tree over a million slots has five levels and a node is two cache lines. A parent is
always the sum of its children, computed anew when one of them changes; nothing is added to or subtracted from a running
sum, so the probabilities stay exact however many updates there were and however far the weights lie apart.

The levels lie one after the other in one array, the leaves first; `levels[i]` is where level i begins. Higher up,
from level 2 on, a node also has the running sums of its children: a draw that goes down compares with 16 of them at
once. They stand behind the levels, in the same order, and the total is the last number of all.
Source: proportional sampling of T. Schaul et al., "Prioritized Experience Replay" (2016), appendix B.2.1.
"""

# Rules: replay S8

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headrace.store.intrinsics import AHEAD, prefetch
from headrace.store.jit import Float, Int, kernel, kernel_apart, opening, unsigned

WIDTH = 16
SHIFT = 4
# The first level with running sums. Below it they would take half a byte for each leaf and spare nothing: there a draw
# waits for memory.
SUMMED = 2


def tree_levels(capacity: int) -> NDArray[np.int64]:
    """Where each level of a tree over slots 0..capacity-1 begins; the last entry is where the total stands."""
    sizes = [max(1, -(-capacity // WIDTH)) * WIDTH]
    while sizes[-1] > WIDTH:
        sizes.append(-(-sizes[-1] // WIDTH // WIDTH) * WIDTH)
    total_at = sum(sizes) + sum(sizes[SUMMED:])
    return np.array([*np.cumsum([0, *sizes[:-1]]), total_at], np.int64)


def new_tree(capacity: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """A tree of zeros over slots 0..capacity-1: its nodes, and where each level begins."""
    levels = tree_levels(capacity)
    return np.zeros(levels[-1] + 1, np.float64), levels


@kernel
def total(nodes: NDArray[np.float64]) -> Float:
    """The sum of all weights."""
    return nodes[-1]


@opening
def _families(nodes: NDArray[np.float64]) -> NDArray[np.float64]:
    """All nodes but the total, float64[..., WIDTH]: siblings side by side, running sums too."""
    return nodes[:-1].reshape((nodes.shape[0] // WIDTH, WIDTH))


@kernel
def _sums_at(levels: NDArray[np.int64], level: Int) -> Int:
    """Where the running sums of a level from SUMMED on begin."""
    top = levels.shape[0] - 2
    return levels[top] + WIDTH + levels[level] - levels[SUMMED]


# ---- bringing parents up to date -----------------------------------------------------------------------------------


@kernel
def _sum(nodes: NDArray[np.float64], first: Int) -> Float:
    # Four sums side by side: the additions do not wait for each other.
    a = nodes[first] + nodes[first + 1] + nodes[first + 2] + nodes[first + 3]
    b = nodes[first + 4] + nodes[first + 5] + nodes[first + 6] + nodes[first + 7]
    c = nodes[first + 8] + nodes[first + 9] + nodes[first + 10] + nodes[first + 11]
    d = nodes[first + 12] + nodes[first + 13] + nodes[first + 14] + nodes[first + 15]
    return (a + b) + (c + d)


@kernel
def _sum_up(nodes: NDArray[np.float64], first: Int, sums: Int) -> Float:
    """Write the running sums of the children from `first` on to `sums` and after; returns the last."""
    below = 0.0
    for group in range(0, WIDTH, WIDTH // 4):
        # Within a group they do not wait for the sum of all before it.
        a = nodes[first + group]
        b = a + nodes[first + group + 1]
        c = b + nodes[first + group + 2]
        d = c + nodes[first + group + 3]
        nodes[sums + group] = below + a
        nodes[sums + group + 1] = below + b
        nodes[sums + group + 2] = below + c
        below += d
        nodes[sums + group + 3] = below
    return below


@kernel
def _num_parents(levels: NDArray[np.int64], level: Int) -> Int:
    return 1 if level == levels.shape[0] - 2 else (levels[level + 1] - levels[level]) >> SHIFT


@kernel
def _renew(nodes: NDArray[np.float64], levels: NDArray[np.int64], level: Int, parent: Int) -> None:
    """Compute the parent number `parent` of this level's nodes anew."""
    first = parent << SHIFT
    if level < SUMMED:
        whole = _sum(nodes, levels[level] + first)
    else:
        whole = _sum_up(nodes, levels[level] + first, _sums_at(levels, level) + first)
    nodes[levels[level + 1] + parent] = whole


@kernel
def _ask_for(nodes: NDArray[np.float64], levels: NDArray[np.int64], level: Int, parent: Int) -> None:
    """Have the processor fetch what `_renew` looks at: two lines of the cache, and two more with running sums."""
    first = parent << SHIFT
    prefetch(nodes, levels[level] + first)
    prefetch(nodes, levels[level] + first + WIDTH // 2)
    if level >= SUMMED:
        prefetch(nodes, _sums_at(levels, level) + first)
        prefetch(nodes, _sums_at(levels, level) + first + WIDTH // 2)


@kernel_apart
def refresh(
    nodes: NDArray[np.float64],
    levels: NDArray[np.int64],
    changed: NDArray[np.int64],
    count: Int,
    parents: NDArray[np.int64],
) -> None:
    """Recompute the parents of the first `count` leaves of `changed`, whose weights stand in the tree already.

    Neighbours share parents: runs of equal parents are computed once, so a run of n slots costs about n / 16 nodes.
    Where a level has fewer parents than changed, all are computed.

    Args:
        parents: scratch, as long as `changed`.
    """
    for level in range(levels.shape[0] - 1):
        everything = _num_parents(levels, level)
        if everything <= count:
            for parent in range(everything):
                _renew(nodes, levels, level, parent)
                parents[parent] = parent
            count = everything
            continue
        below = changed if level == 0 else parents
        kept, last = 0, -1
        for index in range(count):
            parent = below[index] >> SHIFT
            if parent != last:
                parents[unsigned(kept)] = last = parent
                kept += 1
        count = kept
        for index in range(count):
            _ask_for(nodes, levels, level, parents[min(index + AHEAD // 2, count - 1)])
            _renew(nodes, levels, level, parents[index])


@kernel
def rebuild(nodes: NDArray[np.float64], levels: NDArray[np.int64]) -> None:
    """Recompute every parent."""
    for level in range(levels.shape[0] - 1):
        for parent in range(_num_parents(levels, level)):
            _renew(nodes, levels, level, parent)


# ---- drawing -------------------------------------------------------------------------------------------------------


@kernel
def find(
    nodes: NDArray[np.float64],
    levels: NDArray[np.int64],
    uniforms: NDArray[np.float64],
    slots: NDArray[np.int64],
) -> None:
    """For each uniform number in [0, 1) the slot in whose share of the total it falls; overwrites the numbers.

    The total must be above 0; then a slot of weight 0 is never found. All draws go down level by level
    together, so that the memory reads of one do not wait for those of another.
    """
    # Rules: replay S9
    remaining = uniforms[: slots.shape[0]]
    for index in range(slots.shape[0]):
        remaining[index] = uniforms[index] * nodes[-1]
        slots[index] = 0
    for level in range(levels.shape[0] - 2, -1, -1):
        if level >= SUMMED:
            _descend_sums(nodes, levels[level], _sums_at(levels, level), remaining, slots)
        else:
            _descend(nodes, levels[level], remaining, slots)


@kernel_apart
def _descend_sums(
    nodes: NDArray[np.float64],
    first: Int,
    sums_at: Int,
    remaining: NDArray[np.float64],
    slots: NDArray[np.int64],
) -> None:
    """From nodes to the children in whose shares `remaining` falls, and to what remains there, by running sums.

    Args:
        first, sums_at: where the level of the children begins, and where their running sums.
        slots: numbers of nodes in their level.
    """
    families = _families(nodes)
    for index in range(slots.shape[0]):
        _ask_for_family(families, sums_at >> SHIFT, slots, index)
        parent = slots[index]
        sums = families[unsigned((sums_at >> SHIFT) + parent)]
        child = _count_within(sums, remaining[index])
        if child == WIDTH:
            child = _nearest(families[unsigned((first >> SHIFT) + parent)], WIDTH - 1)
            remaining[index] = 0.0
        else:
            remaining[index] -= sums[unsigned(max(child - 1, 0))] if child > 0 else 0.0
        slots[index] = (parent << SHIFT) + child


@kernel
def _ask_for_family(families: NDArray[np.float64], first: Int, slots: NDArray[np.int64], index: Int) -> None:
    """Have the processor fetch the children, two lines of the cache, that a draw some places on looks at."""
    parent = slots[unsigned(min(index + AHEAD // 2, slots.shape[0] - 1))]
    prefetch(families, first + parent)
    prefetch(families[:, WIDTH // 2 :], first + parent)


@kernel
def _count_within(sums: NDArray[np.float64], remaining: Float) -> Int:
    """How many running sums are not above `remaining`: the child in whose share it falls.

    First the group of four, then the one in it. Comparisons are added up instead of jumped over: a jump that cannot be
    predicted costs more than all of them. A child of weight 0 has the running sum of the one before it and is passed
    by. `WIDTH` says that rounding has led past all of them.
    """
    first = 4 * _how_many(remaining, sums[3], sums[7], sums[11])
    last = np.int64(sums[unsigned(first + 3)] <= remaining)
    within = _how_many(remaining, sums[unsigned(first)], sums[unsigned(first + 1)], sums[unsigned(first + 2)])
    return first + within + last


@kernel
def _how_many(remaining: Float, one: Float, two: Float, three: Float) -> Int:
    """How many of three sums are not above `remaining`."""
    # As numbers: NumPy's own True + True is True.
    return np.int64(one <= remaining) + np.int64(two <= remaining) + np.int64(three <= remaining)


@kernel_apart
def _descend(
    nodes: NDArray[np.float64], first: Int, remaining: NDArray[np.float64], slots: NDArray[np.int64]
) -> None:
    """Does the same as `_descend_sums`, where there are no running sums.

    By groups of four and without jumps, as in `_count_within`. The sums are those of `_sum`.
    """
    families = _families(nodes)
    for index in range(slots.shape[0]):
        _ask_for_family(families, first >> SHIFT, slots, index)
        left = remaining[index]
        children = families[unsigned((first >> SHIFT) + slots[index])]
        sum_0 = children[0] + children[1] + children[2] + children[3]
        sum_1 = children[4] + children[5] + children[6] + children[7]
        sum_2 = children[8] + children[9] + children[10] + children[11]
        sum_1 += sum_0
        sum_2 += sum_1
        first_of_four = 4 * _how_many(left, sum_0, sum_1, sum_2)
        left -= _largest_within(left, sum_0, sum_1, sum_2)
        sum_0 = children[unsigned(first_of_four)]
        sum_1 = sum_0 + children[unsigned(first_of_four + 1)]
        sum_2 = sum_1 + children[unsigned(first_of_four + 2)]
        child = first_of_four + _how_many(left, sum_0, sum_1, sum_2)
        left -= _largest_within(left, sum_0, sum_1, sum_2)
        if children[unsigned(child)] <= 0.0:
            child, left = _nearest(children, child), 0.0
        remaining[index] = left
        slots[index] = (slots[index] << SHIFT) + child


@kernel
def _largest_within(remaining: Float, one: Float, two: Float, three: Float) -> Float:
    """The largest of three sums that is not above `remaining`; 0 if all are. Without jumps, unlike a look for which."""
    within = max(one if one <= remaining else 0.0, two if two <= remaining else 0.0)
    return max(within, three if three <= remaining else 0.0)


@kernel_apart
def _nearest(children: NDArray[np.float64], child: Int) -> Int:
    """The nearest child with a weight, to the left if there is one: rounding has led past it."""
    for place in range(child - 1, -1, -1):
        if children[place] > 0.0:
            return place
    for place in range(child + 1, WIDTH):
        if children[place] > 0.0:
            return place
    return child
