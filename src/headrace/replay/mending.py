"""Items that come from a file: checked before anything relies on them, then everything derived is made anew.

Used when a store on disk is opened again and when a checkpoint is loaded. The checks are of structure: what is wrong
here is damage, so the message names the file and the place in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import CheckpointError
from headrace.replay.items import (
    DEAD,
    FIRST,
    INVENTED,
    LIVE,
    LOOKAHEAD,
    REAL,
    SPAN,
    TOUCHES,
    UNIQUE,
    Items,
    pin_rows,
    slot_at,
    window_of,
)
from headrace.replay.kernels import reindex
from headrace.store.jit import Int, kernel
from headrace.store.layout import LANES, PADDING, USED, StoreArrays
from headrace.store.mending import PageMender
from headrace.store.store import Store
from headrace.store.window import follow

Where = Callable[[str, int], str]
"""Tells in which file, and where in it, an entry of an array of items stands."""


@dataclass(frozen=True)
class FoundItems:
    """The items of a table as they were found.

    Attributes:
        items: the arrays; what is derived in them may be anything.
        counts: inserts, samples, deletes.
        max_times: of the table when they were written; 0 for no limit.
        next_key: above every key that was ever used.
        where: tells where an entry of an array stands.
    """

    items: Items
    counts: tuple[int, int, int]
    max_times: int
    next_key: int
    where: Where


def mend(store: Store, in_use: int, tables: list[FoundItems]) -> None:
    """Make everything that is derived from items and rows.

    Args:
        store: nobody else uses it yet.
        in_use: pages that may hold something.
        tables: all of them; `check_items` has found them right.

    Raises:
        CheckpointError: an item whose rows are not there; nothing was changed that matters.
    """
    pages = PageMender(store.arrays, in_use)
    for found in tables:
        slot = int(find_astray(pages.arrays, found.items))
        if slot >= 0:
            raise _damage(found, "rows", slot, "expected a window of stored rows", found.items.rows[slot])
    for found in tables:
        pin_items(pages.arrays, found.items, 1)
        _forget_indexes(found.items)
        reindex(found.items)
    store.adopt(pages.finish())


def _damage(found: FoundItems, array: str, place: int, expected: str, got: Any) -> CheckpointError:
    return CheckpointError(
        f"{found.where(array, place)}: {expected}, got {got}; the file is damaged. Load a checkpoint that is whole"
    )


def check_items(found: FoundItems) -> None:
    """Look at everything that items say of themselves.

    Raises:
        CheckpointError: something does not fit.
    """
    for array, place, expected, got in (*_wrong_words(found), *_wrong_items(found)):
        raise _damage(found, array, place, expected, got)


def _wrong_words(found: FoundItems) -> Iterator[tuple[str, int, str, Any]]:
    ring, capacity = found.items.ring, len(found.items.rows)
    for word, name, most in (
        (FIRST, "a slot", capacity - 1),
        (SPAN, "a number of slots", capacity),
        (LIVE, "a number of items", capacity),
    ):
        if not 0 <= ring[word] <= most:
            yield "ring", word, f"expected {name} from 0 to {most}", ring[word]
            return
    for word in (TOUCHES, UNIQUE):
        if ring[word] < 0:
            yield "ring", word, "expected a count", ring[word]
    live = np.count_nonzero(_in_order(found.items, found.items.rows) != DEAD)
    if live != ring[LIVE]:
        yield "ring", LIVE, f"expected {live} items, as there are", ring[LIVE]
    inserts, samples, deletes = found.counts
    if min(found.counts) < 0 or inserts - deletes != live:
        yield "ring", LIVE, f"expected {inserts} inserts - {deletes} deletes items ({samples} samples)", live


def _wrong_items(found: FoundItems) -> Iterator[tuple[str, int, str, Any]]:
    items = found.items
    keys, dead = _in_order(items, items.keys), _in_order(items, items.rows) == DEAD
    yield from _first(items, "keys", keys[1:] > keys[:-1], "expected keys that rise", keys[1:], 1)
    yield from _first(
        items, "keys", keys < np.uint64(found.next_key), f"expected a key below {found.next_key}", keys
    )
    if found.max_times:
        times = _in_order(items, items.times)
        good = dead | (times < found.max_times)
        yield from _first(items, "times", good, f"expected fewer than {found.max_times} samples", times)
    if len(items.priorities):
        values = _in_order(items, items.priorities)
        good = dead | (np.isfinite(values) & (values >= 0))
        yield from _first(items, "priorities", good, "expected a finite number >= 0", values)
    if len(items.touches):
        touches = _in_order(items, items.touches)
        good = dead | ((touches >= 0) & (touches < items.ring[TOUCHES]))
        yield from _first(items, "touches", good, "expected an earlier touch", touches)
    if len(items.windows):
        windows = _in_order(items, items.windows)
        yield from _first(items, "windows", dead | _are_windows(windows), "expected one row or more", windows)
    elif len(dead) and not _are_windows(items.common_window[None]).all():
        # Without items their window means nothing.
        yield "common_window", 0, "expected one row or more", items.common_window


def _are_windows(windows: NDArray[np.uint32]) -> NDArray[np.bool_]:
    real, invented = windows[:, REAL], windows[:, INVENTED]
    good: NDArray[np.bool_] = (real >= 1) & (real < DEAD // 4) & (invented < DEAD // 4)
    return good


def _first(
    items: Items, array: str, good: NDArray[np.bool_], expected: str, values: NDArray[Any], offset: int = 0
) -> Iterator[tuple[str, int, str, Any]]:
    """The first place, in the order of the ring from `offset` on, where something is wrong."""
    if not good.all():
        index = int(np.argmin(good))
        slot = (int(items.ring[FIRST]) + offset + index) % len(items.rows)
        yield array, slot, expected, values[index]


def _in_order(items: Items, array: NDArray[Any]) -> NDArray[Any]:
    """What an array has from the oldest item to the newest, marked ones included."""
    first, span = int(items.ring[FIRST]), int(items.ring[SPAN])
    until_end = min(span, len(items.rows) - first)
    if until_end == span:
        return array[first : first + span]
    return np.concatenate([array[first:], array[: span - until_end]])


def _forget_indexes(items: Items) -> None:
    for index in (items.sampler, items.remover):
        index.nodes[:] = 0.0
        index.heap.slots[-1] = 0


@kernel
def find_astray(store: StoreArrays, items: Items) -> Int:
    """The slot of an item whose rows are not all there, or -1."""
    pages = store.pages
    for place in range(items.ring[SPAN]):
        slot = slot_at(items, place)
        row = np.int64(items.rows[slot])
        if row == DEAD:
            continue
        page = row // store.page_rows
        if page >= pages.shape[0] or row - page * store.page_rows >= pages[page, USED] * pages[page, LANES]:
            return slot
        if np.int64(store.steps[row]) & PADDING or follow(store, row, window_of(items, slot, REAL) - 1) < 0:
            return slot
    return -1


@kernel
def pin_items(store: StoreArrays, items: Items, change: Int) -> None:
    """Add `change` to the references of every page that an item holds, for each item."""
    for place in range(items.ring[SPAN]):
        slot = slot_at(items, place)
        if items.rows[slot] != DEAD:
            real, lookahead = window_of(items, slot, REAL), window_of(items, slot, LOOKAHEAD)
            pin_rows(store, np.int64(items.rows[slot]), real, lookahead, change)
