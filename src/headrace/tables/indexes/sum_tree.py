"""A wide sum tree: weights of slots, drawn in proportion, without drift.

Every node has 16 children, so a tree over a million slots has five levels and a node is two cache lines. A parent is
always the sum of its children, recomputed when one of them changes; nothing is added to or subtracted from a running
sum, so the probabilities stay exact however many updates there were and however far the weights lie apart.

The levels lie one after the other in one array, the leaves first; `levels[i]` is where level i begins. Higher up,
from level 2 on, a node also has the running sums of its children: a draw that goes down compares with 16 of them at
once. They stand behind the levels, in the same order, and the total is the last number of all.
Source: proportional sampling of T. Schaul et al., "Prioritized Experience Replay" (2016), appendix B.2.1.
"""

# Rules: replay S8

from __future__ import annotations

import cython
import numpy as np

if not cython.compiled:
    from headrace.kernels.hints import prefetch, value_within
    from headrace.kernels.kinds import Doubles, Float, Int, Longs
    from headrace.store.layout import AHEAD
    from headrace.tables.items.layout import CHILD_BITS, CHILDREN, SUMMED


class SumTree:
    """Weights of slots 0..capacity-1.

    Args:
        nodes: float64[...]: the weights, which kernels write themselves, and the sums; none for a table without a tree.
        levels: `layout.tree_levels` of the capacity; none for a table without a tree.
    """

    def __init__(self, nodes: Doubles, levels: Longs) -> None:
        self.nodes = nodes
        self.levels = levels
        self.num_levels = max(0, levels.shape[0] - 1)
        # At most all parents of the leaves; the system gives no memory for entries that are not written.
        self.parents = np.empty(nodes.shape[0] // CHILDREN + 1, np.int64)

    def total(self) -> Float:
        """Returns the sum of all weights."""
        whole: Float = self.nodes[self.nodes.shape[0] - 1]
        return whole

    def _sums_at(self, level: Int) -> Int:
        """Returns the index of the first running sum of a level from SUMMED on."""
        begin: Int = self.levels[self.num_levels - 1] + CHILDREN + self.levels[level] - self.levels[SUMMED]
        return begin

    # ---- bringing parents up to date ---------------------------------------------------------------------------------

    def _num_parents(self, level: Int) -> Int:
        if level == self.num_levels - 1:
            return 1
        children: Int = self.levels[level + 1] - self.levels[level]
        return children >> CHILD_BITS

    def _renew(self, level: Int, parent: Int) -> None:
        """Recomputes the parent number `parent` of this level's nodes."""
        first: Int = parent << CHILD_BITS
        if level < SUMMED:
            whole: Float = self._sum(self.levels[level] + first)
        else:
            whole = self._sum_up(self.levels[level] + first, self._sums_at(level) + first)
        self.nodes[self.levels[level + 1] + parent] = whole

    def _sum(self, first: Int) -> Float:
        # Four sums side by side: the additions do not wait for each other.
        a: Float = self.nodes[first] + self.nodes[first + 1] + self.nodes[first + 2] + self.nodes[first + 3]
        b: Float = (
            self.nodes[first + 4] + self.nodes[first + 5] + self.nodes[first + 6] + self.nodes[first + 7]
        )
        c: Float = (
            self.nodes[first + 8] + self.nodes[first + 9] + self.nodes[first + 10] + self.nodes[first + 11]
        )
        d: Float = (
            self.nodes[first + 12] + self.nodes[first + 13] + self.nodes[first + 14] + self.nodes[first + 15]
        )
        return (a + b) + (c + d)

    def _sum_up(self, first: Int, sums: Int) -> Float:
        """Writes the running sums of the children from `first` on to `sums` and after; returns the last."""
        below: Float = 0.0
        for group in range(0, CHILDREN, 4):
            # Within a group they do not wait for the sum of all before it.
            a: Float = self.nodes[first + group]
            b: Float = a + self.nodes[first + group + 1]
            c: Float = b + self.nodes[first + group + 2]
            d: Float = c + self.nodes[first + group + 3]
            self.nodes[sums + group] = below + a
            self.nodes[sums + group + 1] = below + b
            self.nodes[sums + group + 2] = below + c
            below += d
            self.nodes[sums + group + 3] = below
        return below

    def _ask_for(self, level: Int, parent: Int) -> None:
        """Prefetches the nodes for `_renew`: two lines of the cache, and two more with running sums."""
        first: Int = parent << CHILD_BITS
        prefetch(self.nodes, self.levels[level] + first)
        prefetch(self.nodes, self.levels[level] + first + CHILDREN // 2)
        if level >= SUMMED:
            prefetch(self.nodes, self._sums_at(level) + first)
            prefetch(self.nodes, self._sums_at(level) + first + CHILDREN // 2)

    def refresh(self, changed: Longs, first: Int, count: Int) -> None:
        """Recomputes the parents of the leaves `changed[first : first + count]`, whose weights are written already.

        Neighbours share parents: runs of equal parents are computed once, so a run of n slots costs about n / 16 nodes.
        Where a level has no more parents than changed, all are computed.
        """
        for level in range(self.num_levels):
            everything: Int = self._num_parents(level)
            if everything <= count:
                for parent in range(everything):
                    self._renew(level, parent)
                # So all are computed of the levels above, too: they have fewer.
                count = everything
                continue
            kept: Int = 0
            last: Int = -1
            for index in range(count):
                below: Int = changed[first + index] if level == 0 else self.parents[index]
                above: Int = below >> CHILD_BITS
                if above != last:
                    last = above
                    self.parents[kept] = above
                    kept += 1
            count = kept
            for index in range(count):
                self._ask_for(level, self.parents[min(index + AHEAD // 2, count - 1)])
                self._renew(level, self.parents[index])

    def rebuild(self) -> None:
        """Recomputes every parent."""
        for level in range(self.num_levels):
            for parent in range(self._num_parents(level)):
                self._renew(level, parent)

    # ---- drawing -----------------------------------------------------------------------------------------------------

    def find(self, uniforms: Doubles, first: Int, slots: Longs, to: Int, count: Int) -> None:
        """Finds the slot in whose share of the total each uniform number in [0, 1) falls; overwrites the numbers.

        The total must be above 0; then a slot of weight 0 is never found. All draws go down level by level together, so
        that the memory reads of one do not wait for those of another.

        Args:
            uniforms: `uniforms[first : first + count]` are the numbers.
            slots: `slots[to : to + count]` are written.
        """
        # Rules: replay S9
        total = self.total()
        for index in range(count):
            uniforms[first + index] *= total
            slots[to + index] = 0
        for number in range(self.num_levels):
            level = self.num_levels - 1 - number
            begin: Int = self.levels[level]
            if level >= SUMMED:
                _descend_sums(self.nodes, begin, self._sums_at(level), uniforms, first, slots, to, count)
            else:
                _descend(self.nodes, begin, uniforms, first, slots, to, count)


# ---- going down ------------------------------------------------------------------------------------------------------


def _descend_sums(
    nodes: Doubles,
    level: Int,
    sums_at: Int,
    remaining: Doubles,
    first: Int,
    slots: Longs,
    to: Int,
    count: Int,
) -> None:
    """Goes from nodes to the children in whose shares `remaining` falls, by running sums.

    How many running sums are not above `remaining` is the number of the child. First the group of four is found, then
    the one in it. Comparisons are added up instead of jumped over: a jump that cannot be predicted costs more than all
    of them. A child of weight 0 has the running sum of the one before it and is passed by.

    Args:
        level, sums_at: where the level of the children begins, and where their running sums.
        slots: numbers of nodes in their level.
    """
    for index in range(count):
        asked: Int = sums_at + (slots[to + min(index + AHEAD // 2, count - 1)] << CHILD_BITS)
        prefetch(nodes, asked)
        prefetch(nodes, asked + CHILDREN // 2)
        left: Float = remaining[first + index]
        family: Int = slots[to + index] << CHILD_BITS
        sums = sums_at + family
        four: Int = 4 * _how_many(left, nodes[sums + 3], nodes[sums + 7], nodes[sums + 11])
        child: Int = four + cython.cast(Int, nodes[sums + four + 3] <= left)
        child += _how_many(left, nodes[sums + four], nodes[sums + four + 1], nodes[sums + four + 2])
        if child == CHILDREN:  # Rounding has led past all of them.
            child = _nearest(nodes, level + family, CHILDREN - 1)
            left = 0.0
        elif child > 0:
            left -= nodes[sums + child - 1]
        remaining[first + index] = left
        slots[to + index] = family + child


def _descend(
    nodes: Doubles, level: Int, remaining: Doubles, first: Int, slots: Longs, to: Int, count: Int
) -> None:
    """Does the same as `_descend_sums`, where there are no running sums. The sums are those of `SumTree._sum`."""
    for index in range(count):
        asked: Int = level + (slots[to + min(index + AHEAD // 2, count - 1)] << CHILD_BITS)
        prefetch(nodes, asked)
        prefetch(nodes, asked + CHILDREN // 2)
        left: Float = remaining[first + index]
        family: Int = level + (slots[to + index] << CHILD_BITS)
        sum_0: Float = nodes[family] + nodes[family + 1] + nodes[family + 2] + nodes[family + 3]
        sum_1: Float = nodes[family + 4] + nodes[family + 5] + nodes[family + 6] + nodes[family + 7]
        sum_2: Float = nodes[family + 8] + nodes[family + 9] + nodes[family + 10] + nodes[family + 11]
        sum_1 += sum_0
        sum_2 += sum_1
        four: Int = 4 * _how_many(left, sum_0, sum_1, sum_2)
        left -= _largest_within(left, sum_0, sum_1, sum_2)
        sum_0 = nodes[family + four]
        sum_1 = sum_0 + nodes[family + four + 1]
        sum_2 = sum_1 + nodes[family + four + 2]
        child: Int = four + _how_many(left, sum_0, sum_1, sum_2)
        left -= _largest_within(left, sum_0, sum_1, sum_2)
        if nodes[family + child] <= 0.0:
            child = _nearest(nodes, family, child)
            left = 0.0
        remaining[first + index] = left
        slots[to + index] = family - level + child


def _how_many(remaining: Float, one: Float, two: Float, three: Float) -> Int:
    """Counts the sums, of three, that are not above `remaining`."""
    # As numbers: NumPy's own True + True is True.
    return (
        cython.cast(Int, one <= remaining)
        + cython.cast(Int, two <= remaining)
        + cython.cast(Int, three <= remaining)
    )


def _largest_within(remaining: Float, one: Float, two: Float, three: Float) -> Float:
    """Returns the largest of three sums that is not above `remaining`, without a jump; 0 if all are above it."""
    within = max(value_within(one, remaining), value_within(two, remaining))
    return max(within, value_within(three, remaining))


def _nearest(nodes: Doubles, family: Int, child: Int) -> Int:
    """Returns the nearest child with a weight, first to the left: rounding has led past it."""
    for distance in range(1, child + 1):
        if nodes[family + child - distance] > 0.0:
            return child - distance
    for place in range(child + 1, CHILDREN):
        if nodes[family + place] > 0.0:
            return place
    return child
