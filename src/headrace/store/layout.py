"""Layout of a store: the words of a page, the bits of a step, the arrays of its two arenas.

One arena holds the values of rows, and another process may map it. The other, the index, holds all that the store
relies on: page table, free list, step words, links, episodes, versions. No other process ever maps the index.

Both are cut into pages of `page_rows` rows. A page belongs to one writer of `lanes` environments and is filled as
a block `[steps, lanes]`, time first: the next step of a lane is `lanes` rows on, and the N rows of one vector step are
one slice. Pages of one writer are linked, so a lane goes on from page to page.

Each row has one 32-bit word of metadata (`steps`): the index of its step in its episode and four flags. Episode ids
stand once for each episode and page (`start_rows`, `start_ids`), policy versions once for each vector step, or once for
each row where the lanes of a page are stepped at different times.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.spec import Signature
from headrace.store.memory.arena_layout import ArenaLayout
from headrace.store.records import columns_of, record_layout
from headrace.system import reservable_nbytes

# The words of `pages[page]`.
LANES = 0  # environments side by side; 0 while the page is free
USED = 1  # vector steps that are committed
NEXT = 2  # the page where these lanes go on, or -1
PREVIOUS = 3  # the page where they came from, or -1
REFERENCES = 4  # number of items, writers and final rows that hold it
STARTS = 5  # entries in start_rows, start_ids
LINKED_ROWS = 6  # rows whose final row stands in another page
VERSIONED = 7  # whether versions were written: 0, BY_STEP or BY_ROW
PAGE_WORDS = 8

# How versions stand in a page.
BY_STEP = 1  # one for each vector step
BY_ROW = 2  # one for each row

# The bits of `steps[row]`.
STEP_BITS = 28
STEP_MASK = (1 << STEP_BITS) - 1
# A step index past the mask goes on in the upper half, so that "how far back does the episode reach" stays at least
# 2**27 for ever. tests/store/test_window.py::test_step_index_past_its_bits shows it.
STEP_HALF = 1 << (STEP_BITS - 1)
ENDED = 1 << 28  # the last row of an episode of which no final observation is known
FINAL = 1 << 29  # holds the final observation; no transition starts here
LINKED = 1 << 30  # the last transition of an episode whose final row stands elsewhere: links[row] - 1
EMPTY = 1 << 31  # nothing was written here: the lane waited

# Kinds of the entry at an offset of a row (`window`).
UNKNOWN = 0  # nothing, and nothing near it either
EDGE = 1  # nothing, but the nearest value of the episode may be shown instead
KNOWN = 2

# The words of a lane of a block (`commit`): at which of the block's steps the episode began that ended last, and the
# one after it; and the last row of the one that ended last, while the lane has not gone on.
ENDED_FROM, OPEN_FROM, LAST_ROW = range(3)
LANE_WORDS = 3

# Value of the lookahead of a window that goes on over ends of episodes (`window`).
STREAM = 0xFFFFFFFF

AHEAD = 64
"""Number of reads ahead for which a loop over random rows prefetches (`hints.prefetch`).

A processor keeps some dozens of prefetches at a time and drops the others (bench/changes.md has the figures).
"""

NO_LINK = 0
ORPHAN = 0xFFFFFFFF  # a final row whose last transition is gone

MAX_ROWS = 0xFFFFFFF0
# Pages reserved beyond those of the capacity.
SPARE_PAGES = 64


class StoreArrays(NamedTuple):
    """The arrays of a store that kernels see (see the module's text for the words and bits)."""

    pages: NDArray[np.int64]  # [pages, PAGE_WORDS]
    steps: NDArray[np.uint32]  # [rows]
    links: NDArray[
        np.uint32
    ]  # [rows]: of a LINKED row the final row + 1, of that final row the LINKED row + 1
    start_rows: NDArray[
        np.uint32
    ]  # [rows]: by page, the rows (counted in the page) where an episode begins or goes on
    start_ids: NDArray[np.int64]  # [rows]: by page, the episode's id
    freed: NDArray[
        np.int64
    ]  # [pages + 1]: pages whose last reference went, a stack; the last word is its height
    page_rows: int


class LaneArrays(NamedTuple):
    """The state of lanes side by side, beside their rows."""

    steps: NDArray[np.uint32]  # [lanes]: the index of each lane's next step in its episode
    episodes: NDArray[np.int64]  # [lanes]: the episode that each lane is in
    newest: NDArray[np.int64]  # [lanes]: the rows of the step committed last
    words: NDArray[np.int64]  # [LANE_WORDS, lanes]

    @classmethod
    def empty(cls, lanes: int) -> LaneArrays:
        """Makes the arrays of empty lanes."""
        words = np.zeros((LANE_WORDS, lanes), np.int64)
        words[LAST_ROW] = -1
        return cls(np.zeros(lanes, np.uint32), np.full(lanes, -1, np.int64), np.empty(lanes, np.int64), words)

    def copies(self) -> LaneArrays:
        """Returns copies of the arrays."""
        return LaneArrays(self.steps.copy(), self.episodes.copy(), self.newest.copy(), self.words.copy())

    def write(self, others: LaneArrays) -> None:
        """Writes the values of other arrays of as many lanes into these."""
        self.steps[:], self.episodes[:], self.newest[:] = others.steps, others.episodes, others.newest
        self.words[:] = others.words


def plan_index(num_pages: int, page_rows: int) -> ArenaLayout:
    """Plans the arrays with the metadata of the rows of a store of this size."""
    rows = num_pages * page_rows
    layout = ArenaLayout()
    layout.add("pages", (num_pages, PAGE_WORDS), np.int64)
    layout.add("freed", (num_pages + 1,), np.int64)
    layout.add("steps", (rows,), np.uint32)
    layout.add("links", (rows,), np.uint32)
    layout.add("start_rows", (rows,), np.uint32)
    layout.add("start_ids", (rows,), np.int64)
    layout.add("versions", (rows,), np.int32)
    return layout


def plan_rows(signature: Signature, num_pages: int, page_rows: int) -> ArenaLayout:
    """Plans the arrays that hold the values of the rows of a store of this size."""
    rows = num_pages * page_rows
    layout = ArenaLayout()
    records = record_layout(signature)
    layout.add("records", (rows, records.nbytes), np.uint8)
    wide = [(name, spec) for name, spec in signature.columns.items() if name not in records.offsets]
    # The widest last: a file ends with the last page that was taken of the last array (`page_spans`).
    for name, spec in sorted(wide, key=lambda each: each[1].nbytes):
        layout.add(f"column:{name}", (rows, *spec.shape), spec.dtype)
    return layout


def page_spans(layout: ArenaLayout, num_pages: int, page: int, pages: int = 1) -> NDArray[np.int64]:
    """Finds the bytes of pages `page:page + pages` in each array that is cut into pages.

    Args:
        layout: of the index or of the rows.
        num_pages: of the store.
        page, pages: the first page, and their number.

    Returns:
        int64[arrays, 2]: where they begin and end.
    """
    spans = []
    for name, (offset, shape, dtype) in layout.places.items():
        if name != "freed":  # The only array that is not by page.
            nbytes = shape[0] // num_pages * math.prod(shape[1:]) * dtype.itemsize
            spans.append((offset + page * nbytes, offset + (page + pages) * nbytes))
    return np.array(spans, np.int64)


def columns(arrays: Mapping[str, NDArray[Any]], signature: Signature) -> dict[str, NDArray[Any]]:
    """Returns each column's array, `dtype[rows, ...]`, from the arrays of a plan."""
    small = columns_of(arrays["records"], record_layout(signature), signature)
    return {name: small[name] if name in small else arrays[f"column:{name}"] for name in signature.columns}


def rows_of_a_page(row_nbytes: int, capacity: int | None) -> int:
    """Returns the rows of a page: about 1 MiB of them, and at most 1/32 of the capacity.

    At least 64 rows, so that a vector step fits, as long as these are at most 16 MiB; and at most 32768.
    """
    # Rules: replay C2
    row_nbytes = max(1, row_nbytes)
    fewest = max(1, min(64, (16 << 20) // row_nbytes))
    rows = min(32768, max(fewest, (1 << 20) // row_nbytes))
    return rows if capacity is None else max(1, min(rows, capacity // 32))


def reserved_rows(row_nbytes: int) -> int:
    """Returns the rows that a store without capacity reserves, by the limit of the system (`reservable_nbytes`)."""
    return int(min(MAX_ROWS // 2, reservable_nbytes() // (row_nbytes + 24)))


def reserved_pages(capacity: int | None, row_nbytes: int, page_rows: int) -> int:
    """Returns the number of pages to reserve.

    A block of N lanes leaves `page_rows % N` rows of a page unused, at worst nearly half of it; so twice the pages are
    reserved, and the capacity is kept by counting rows.

    Raises:
        ValueError: a capacity of which not all rows could be numbered.
    """
    rows = reserved_rows(row_nbytes) if capacity is None else capacity
    pages, most = 2 * -(-rows // page_rows) + SPARE_PAGES, MAX_ROWS // page_rows
    if capacity is not None and pages > most:
        raise ValueError(
            f"capacity: expected at most {(most - SPARE_PAGES) // 2 * page_rows} steps, got {capacity}: rows have "
            "numbers of 32 bits, half of which are kept for places that vector steps leave unused. Use several replays"
        )
    return min(pages, most)


def versions_in(words: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns int64[P], the number of versions that stand in pages; `words` are theirs, `[P, PAGE_WORDS]`.

    >>> words = np.zeros((3, PAGE_WORDS), np.int64)
    >>> words[:, LANES], words[:, USED], words[:, VERSIONED] = 4, 10, [0, BY_STEP, BY_ROW]
    >>> versions_in(words).tolist()
    [0, 10, 40]
    """
    kind = words[:, VERSIONED]
    count: NDArray[np.int64] = words[:, USED] * np.where(kind == BY_ROW, words[:, LANES], kind != 0)
    return count
