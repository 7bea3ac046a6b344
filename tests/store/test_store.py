"""Pages: who takes and holds them, what happens when none is free, and what readers and views may rely on."""

import gc
import os
import re
import sys
import threading
import weakref
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_kernels import fewer

import headrace as hr
from headrace.errors import StoreFull
from headrace.replay.public import core_of
from headrace.spec import ArraySpec, Signature
from headrace.store import layout
from headrace.store.block import LaneBlock, WrittenSteps
from headrace.store.layout import (
    LANES,
    MAX_ROWS,
    NEXT,
    PREVIOUS,
    REFERENCES,
    USED,
    plan_rows,
    reserved_pages,
    rows_of_a_page,
)
from headrace.store.memory.arena import Arena
from headrace.store.store import Store
from headrace.views.stored.rows import metadata_of

SIGNATURE = Signature({"number": ArraySpec((), np.int64), "frame": ArraySpec(2, np.float32)})


def make_store(capacity: int | None = 64, page_rows: int | None = 4) -> Store:
    return Store(SIGNATURE, capacity, make_arena=Arena.private, page_rows=page_rows)


def append(store: Store, block: LaneBlock, first: int) -> int:
    """One vector step whose rows hold first, first + 1, ...; returns its first row."""
    block.make_room()
    row = block.row
    store.columns["number"][row : row + block.lanes] = np.arange(first, first + block.lanes)
    block.commit()
    return row


def until_full(step: Callable[[], object]) -> str:
    """Repeats until the store is full; returns the message."""
    for _ in range(10_000):
        try:
            step()
        except StoreFull as error:
            return str(error)
    raise AssertionError("the store is never full")


def close(store: Store, block: LaneBlock) -> None:
    for page in block.release():
        store.release(page)


# ---- references ------------------------------------------------------------------------------------------------------


def test_a_page_has_one_reference_and_is_free_at_zero():
    store = make_store()
    page = store.acquire(2)
    words = store.arrays.pages[page]
    assert (words[LANES], words[USED], words[REFERENCES], words[NEXT], words[PREVIOUS]) == (2, 0, 1, -1, -1)
    store.pins.pin_page(page, 2)
    store.release(page)
    store.release(page)
    assert store.statistics().pages == 1
    store.release(page)
    assert (store.statistics().pages, store.statistics().free_pages) == (0, 1)
    assert store.acquire(1) == page


def test_pages_of_a_block_are_linked_until_one_of_them_goes():
    store = make_store()
    first = store.acquire(1)
    second = store.acquire(1, first)
    third = store.acquire(1, second)
    pages = store.arrays.pages
    assert (pages[first, NEXT], pages[second, NEXT], pages[third, NEXT]) == (second, third, -1)
    assert (pages[first, PREVIOUS], pages[second, PREVIOUS], pages[third, PREVIOUS]) == (-1, first, second)
    store.release(second)
    store.statistics()
    assert (pages[first, NEXT], pages[third, PREVIOUS]) == (-1, -1)


def test_freed_pages_are_used_before_new_ones():
    """C1: freed pages are used again before new ones are taken."""
    store = make_store(None)
    pages = [store.acquire(1) for _ in range(5)]
    for page in pages[1:4]:
        store.release(page)
    again = {store.acquire(1) for _ in range(3)}
    assert again == set(pages[1:4])
    assert store.statistics().free_pages == 0


@settings(max_examples=fewer(50))
@given(
    st.lists(
        st.tuples(st.sampled_from(["take", "pin", "unpin", "hold", "let go"]), st.integers(0, 20)),
        max_size=60,
    )
)
def test_references_against_a_model(operations: list[tuple[str, int]]):
    """A page is in use exactly while somebody has a reference to it, and no page is handed out twice."""
    store = make_store(32, page_rows=2)
    references: dict[int, int] = {}
    held: list[tuple[int, np.ndarray]] = []
    for what, choice in operations:
        alive = sorted(references)
        if what == "take":
            if 2 * len(references) + 2 > 32 + 2 * 2:
                with pytest.raises(StoreFull):
                    store.acquire(2)
                continue
            page = store.acquire(2)
            assert page not in references
            references[page] = 1
        elif alive and what != "let go":
            page = alive[choice % len(alive)]
            if what == "pin":
                store.pins.pin_page(page, 1)
                references[page] += 1
            elif what == "hold":
                held.append((page, store.hold([page], store.columns["number"][:1])))
                references[page] += 1
            elif references[page] > sum(1 for other, _ in held if other == page):
                store.release(page)
                references[page] -= 1
        elif what == "let go" and held:
            page, array = held.pop(choice % len(held))
            del array
            references[page] -= 1
        references = {page: count for page, count in references.items() if count}
        assert store.statistics().pages == len(references)


# ---- capacity --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("capacity", [0, -1, MAX_ROWS + 1])
def test_capacity_out_of_range(capacity: int):
    with pytest.raises(ValueError, match="capacity"):
        make_store(capacity)


@pytest.mark.parametrize(("capacity", "page_rows"), [(4_000_000_000, 32768), (2**31, 64), (MAX_ROWS, 1)])
def test_a_capacity_that_cannot_be_numbered_is_refused(capacity: int, page_rows: int):
    """C2: rows have numbers of 32 bits, and lanes that do not fill their pages need twice as many."""
    with pytest.raises(ValueError, match=r"capacity: expected at most (\d+) steps, got") as refused:
        reserved_pages(capacity, 4, page_rows)
    most = int(re.search(r"at most (\d+)", str(refused.value))[1])
    assert most > 2_140_000_000
    assert reserved_pages(most, 4, page_rows) * page_rows <= MAX_ROWS
    table = hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=9)
    with pytest.raises(ValueError, match="capacity: expected at most"):
        hr.Replay(SIGNATURE, [table], capacity=4_000_000_000)


def test_without_capacity_no_more_is_reserved_than_can_be_numbered(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(layout, "reservable_nbytes", lambda: 2**43)
    assert reserved_pages(None, 4, 32768) * 32768 <= MAX_ROWS
    with pytest.raises(ValueError, match=f"at most {MAX_ROWS} rows"):
        Store(SIGNATURE, None, page_rows=32768, num_pages=2**17)


@pytest.mark.parametrize("capacity", [1, 2, 31, 32, 33, 100, 1000, 4097])
@pytest.mark.parametrize("lanes", [1, 3, 8])
def test_at_least_the_capacity_can_be_stored(capacity: int, lanes: int):
    """C2: n rows are storable, and only a few percent more; a page holds at most 1/32 of the capacity."""
    store = make_store(capacity, None)
    page_rows = store.arrays.page_rows
    assert page_rows == 1 or page_rows <= capacity // 32
    block = LaneBlock(store, min(lanes, page_rows), MAX_ROWS)
    until_full(lambda: append(store, block, 0))
    rows = store.statistics().rows
    assert capacity <= rows <= capacity * 1.07 + 2


@pytest.mark.parametrize("lanes", [2, 5])
def test_at_least_the_capacity_can_be_stored_with_final_rows_beside(lanes: int):
    """C2, where some of the rows are final rows in pages of their own."""
    capacity = 1000
    store = make_store(capacity, None)
    block = LaneBlock(store, lanes, MAX_ROWS)

    def episode() -> None:
        for _ in range(3):
            append(store, block, 0)
        first, room = block.make_room_for_finals()
        block.commit_finals(np.arange(min(lanes, room)), first)

    until_full(episode)
    assert store.statistics().rows >= capacity


def test_rows_of_a_page():
    """About 1 MiB, between 64 and 32768 rows, at most 1/32 of the capacity (C2); wide rows at most 16 MiB."""
    assert rows_of_a_page(28 * 1024, None) == rows_of_a_page(256 * 1024, None) == 64
    assert rows_of_a_page(1 << 20, None) == 16
    assert rows_of_a_page(10_000_000, None) == rows_of_a_page(1 << 30, None) == 1
    assert rows_of_a_page(1, None) == 32768
    assert rows_of_a_page(1024, None) == 1024
    assert rows_of_a_page(1, 3200) == 100
    assert rows_of_a_page(1, 5) == 1


def test_without_capacity_the_store_grows_as_rows_come():
    """C1: memory is taken as rows are written, and what was freed is used again."""
    store = make_store(None)
    block = LaneBlock(store, 1, 10)
    for step in range(2000):
        append(store, block, step)
    # The reach of 10 rows: three pages, and the one that was given back last.
    statistics = store.statistics()
    assert statistics.capacity is None
    assert statistics.pages <= 4
    assert statistics.pages + statistics.free_pages <= 5


def test_wide_rows_take_little_more_than_what_is_held():
    """C1: a table of 5 rows of 4 MB, with one writer, takes the pages of 5 rows and a few more."""
    table = hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=5)
    row = np.zeros(4_000_000, np.uint8)
    with hr.Replay(Signature.like({"x": row}), [table]) as replay:
        with replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
            for _ in range(40):
                writer.append({"x": row})
        store = replay.statistics().store
        used = (store.pages + store.free_pages) * core_of(replay).store.arrays.page_rows * store.row_bytes
        assert used <= 4 * 5 * store.row_bytes


def test_a_store_of_part_filled_pages_says_so():
    """C3: writers of one step each fill it with few rows; the message tells what to do otherwise."""
    store = make_store(1000, page_rows=31)
    opened = []

    def append_with_another_writer():
        opened.append(LaneBlock(store, 1, MAX_ROWS))
        append(store, opened[-1], 0)

    message = until_full(append_with_another_writer)
    pages = len(opened) - 1
    assert f"{pages} rows held" in message
    assert f"{pages} pages are in use: each open writer fills pages of its own" in message
    assert "Write many episodes with one writer" in message


def test_rows_beyond_every_address_are_refused():
    """C3"""
    with pytest.raises(StoreFull, match="expected room for .* bytes, reserved for"):
        Store(Signature({"x": ArraySpec((2**40, 2**20), np.int64)}), 10)


def test_a_full_store_keeps_everything_and_goes_on():
    """C3: nothing that was stored is lost, the step is not stored, and the writer goes on when pages leave."""
    store = make_store(16, page_rows=2)
    store.who_holds = lambda: "Somebody holds it. "
    held = LaneBlock(store, 1, MAX_ROWS)
    rows = [append(store, held, step) for step in range(10)]
    other = LaneBlock(store, 1, MAX_ROWS)
    message = until_full(lambda: append(store, other, 100))
    assert re.search(r"capacity 16 steps, \d+ rows held \(\d+ bytes\).*Somebody holds it", message)
    assert "space is freed 2 rows at a time" in message
    assert "with one writer" not in message
    before = store.statistics()
    for _ in range(3):
        with pytest.raises(StoreFull):
            append(store, other, 999)
    assert store.statistics() == before
    assert store.columns["number"][rows].tolist() == list(range(10))
    close(store, held)
    assert [append(store, other, 200 + n) for n in range(4)]
    assert store.columns["number"][other.last] == 203


def test_a_full_store_lets_go_of_what_is_out_of_reach():
    """C3: a writer that waits for room gives back its own pages that no later window can reach."""
    store = make_store(32, page_rows=1)
    block = LaneBlock(store, 1, 1)
    taken: list[int] = []
    append(store, block, 0)
    until_full(lambda: taken.append(store.acquire(1)))
    store.release(taken.pop())
    for step in range(1, 40):
        append(store, block, step)
        assert store.columns["number"][block.last] == step


@pytest.mark.parametrize(
    ("capacity", "lanes"), [(64, 1), (65, 1), (100, 1), (1000, 1), (1000, 4), (1000, 20)]
)
def test_a_table_as_large_as_the_store_runs_for_ever(capacity: int, lanes: int):
    """C4, at its edge: one item a row, as many items as rows."""
    table = hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=capacity)
    replay = hr.Replay(SIGNATURE, [table], capacity=capacity, seed=0)
    lead = () if lanes == 1 else (lanes,)
    with replay.writer(lanes, items=[hr.ItemRule("t", 1)]) as writer:
        for step in range(3 * capacity // lanes):
            writer.append({"number": np.full(lead, step), "frame": np.zeros((*lead, 2), np.float32)})
        assert len(replay.table("t")) == capacity
    replay.close()


# ---- readers ---------------------------------------------------------------------------------------------------------


def test_page_waits_for_its_readers():
    """A page that was held when a reader began is not used again before that reader ends."""
    store = make_store(None)
    page = store.acquire(1)
    with store.reading():
        store.release(page)
        other = store.acquire(1)
        assert other != page
        with store.reading():  # One that began after the page was freed keeps nothing of it.
            assert store.statistics().free_pages == 1
    assert store.acquire(1) == page


def test_a_later_reader_does_not_keep_a_page():
    store = make_store(None)
    page = store.acquire(1)
    store.release(page)
    with store.reading():
        assert store.acquire(1) == page


def test_pages_wait_for_the_oldest_of_several_readers():
    store = make_store(None)
    first, second = store.acquire(1), store.acquire(1)
    with store.lock:
        early = store.begin_reading()
    store.release(first)
    assert store.acquire(1) not in (first, second)
    with store.lock:
        late = store.begin_reading()
    store.release(second)
    early.end()
    assert store.acquire(1) == first  # The late reader began after it was freed.
    assert store.acquire(1) != second
    late.end()
    assert store.acquire(1) == second


def test_what_is_freed_after_a_reader_began_stays_whole_for_it():
    """A draw may remove the item that it hands out, and look its rows up afterwards, under the same lock."""
    store = make_store()
    block = LaneBlock(store, 1, MAX_ROWS)
    row = append(store, block, 1)
    with store.lock:
        reader = store.begin_reading()
        close(store, block)
        assert store.arrays.pages[row // 4, LANES] == 1
        assert store.arrays.pages[row // 4, USED] == 1
    reader.end()
    assert store.statistics().rows == 0
    assert store.arrays.pages[row // 4, LANES] == 0


def test_readers_that_end_without_the_lock_disturb_nobody():
    """Readers begin under the lock and end without it, while pages are taken and given back."""
    store = make_store(None)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    errors: list[BaseException] = []
    go = threading.Event()

    def read() -> None:
        go.wait()
        try:
            for _ in range(400):
                with store.lock:
                    reader = store.begin_reading()
                reader.end()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        go.set()
        for _ in range(400):
            store.release(store.acquire(1))
    finally:
        sys.setswitchinterval(interval)
        for thread in threads:
            thread.join()
    assert not errors
    assert store.statistics().pages == 0


# ---- views without a copy --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lanes", [1, 3])
def test_block_is_the_rows_themselves(lanes: int):
    """`[T, N, ...]`, time first, read-only, no copy."""
    store = make_store(None, page_rows=9)
    block = LaneBlock(store, lanes, 100)
    for step in range(3):
        row = append(store, block, 10 * step)
        store.columns["frame"][row : row + lanes] = step
    page = row // 9
    numbers, frames = store.block(page, "number"), store.block(page, "frame")
    assert numbers.shape == (3, lanes)
    assert frames.shape == (3, lanes, 2)
    assert numbers.tolist() == [[10 * step + lane for lane in range(lanes)] for step in range(3)]
    assert np.shares_memory(numbers, store.columns["number"])
    assert store.block(page, "number", 1, 2).tolist() == numbers[1:2].tolist()
    assert store.block(page, "number", 1, 99).shape == (2, lanes)
    assert store.block(page, "number", 2, 2).shape == (0, lanes)
    assert (frames == np.arange(3)[:, None, None]).all()
    for array in (numbers, frames, numbers[1:], numbers.reshape(-1)):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    with pytest.raises(ValueError):
        numbers.flags.writeable = True


@pytest.mark.parametrize(
    "derive",
    [
        lambda array: array,
        lambda array: array[1:],
        lambda array: array.reshape(-1)[::2][1:],
        lambda array: np.asarray(array).view(np.uint64),
        memoryview,
        lambda array: np.asarray(memoryview(array)),
        lambda array: array.T,
    ],
    ids=["itself", "slice", "slices", "view", "memoryview", "of a memoryview", "transposed"],
)
def test_a_page_waits_for_the_last_array_over_it(derive):
    """Data under a view never changes: the page is used again when the last array made from it is garbage."""
    store = make_store(None)
    block = LaneBlock(store, 2, 100)
    row = append(store, block, 1)
    append(store, block, 3)
    page = row // 4
    kept = derive(store.block(page, "number"))
    close(store, block)
    gc.collect()
    assert store.statistics().pages == 1
    before = bytes(memoryview(np.ascontiguousarray(kept)).cast("B"))
    writer = LaneBlock(store, 2, 1)
    for step in range(20):
        append(store, writer, 100 * step)
    assert bytes(memoryview(np.ascontiguousarray(kept)).cast("B")) == before
    close(store, writer)
    del kept
    assert store.statistics().pages == 0


def test_a_view_outlives_the_closed_store():
    """The memory under a view is never freed while the view lives."""
    store = Store(SIGNATURE, 64, make_arena=Arena.shared, page_rows=4)
    block = LaneBlock(store, 1, 100)
    for step in range(4):
        append(store, block, step)
    view = store.block(block.last // 4, "number")[1:]
    close(store, block)
    store.close()
    del store, block
    gc.collect()
    assert view.tolist() == [[1], [2], [3]]


def test_a_store_is_shared_with_all_that_is_in_it():
    """The values of rows are where another process looks for them, new ones too; nothing else is there."""
    store = Store(SIGNATURE, 256, make_arena=Arena.private, page_rows=4)
    block = LaneBlock(store, 2, 100)
    for step in range(20):
        append(store, block, step)
    view = store.block(block.last // 4, "number")
    arrays = {name: array.copy() for name, array in store.layout.arrays(store.arena).items()}
    assert not store.arena.is_shareable
    descriptor = store.share()
    assert store.arena.is_shareable
    assert store.share() == descriptor
    attached = Arena.attach(os.dup(descriptor), store.arena.nbytes)
    for name, array in store.layout.arrays(attached).items():
        assert (array == arrays[name]).all(), name
    append(store, block, 20)
    there = plan_rows(SIGNATURE, store.num_pages, 4).arrays(attached)
    assert set(there) == {"records"}
    assert not store.index.is_shareable
    assert (there["records"].reshape(-1) == store.records).all()
    assert len(view) == 2
    attached.close()
    close(store, block)


def test_hold_keeps_several_pages():
    store = make_store(None)
    pages = [store.acquire(1) for _ in range(3)]
    array = store.hold(pages[:2], store.columns["number"][:12])
    for page in pages:
        store.release(page)
    assert store.statistics().pages == 2
    del array
    assert store.statistics().pages == 0


def test_a_finalizer_under_the_lock_does_no_harm():
    """`drop` may run anywhere, also while the store changes: it only leaves a note for the next turn."""
    store = make_store(None)
    page = store.acquire(1)
    with store.lock:
        store.drop([page])
        assert store.arrays.pages[page, REFERENCES] == 1
    assert store.acquire(1) == page


# ---- statistics ------------------------------------------------------------------------------------------------------


def test_statistics_count_rows_pages_and_bytes():
    store = make_store(64)
    assert store.row_nbytes == 8 + 8 + 4
    block = LaneBlock(store, 2, 100)
    for step in range(3):
        append(store, block, step)
    first, _ = block.make_room_for_finals()
    block.commit_finals(np.array([1]), first)
    statistics = store.statistics()
    assert (statistics.rows, statistics.pages, statistics.free_pages) == (7, 3, 0)
    assert (statistics.capacity, statistics.bytes, statistics.row_bytes) == (64, 7 * 20, 20)
    close(store, block)
    later = store.statistics()
    assert (later.rows, later.pages, later.free_pages, later.bytes) == (0, 0, 3, 0)
    assert statistics.rows == 7  # Records do not change after they are made.


def test_versions_of_an_earlier_use_are_gone():
    store = make_store(None)
    block = LaneBlock(store, 1, 1)
    block.kernel.version = 7
    for step in range(12):
        append(store, block, step)
    close(store, block)
    fresh = LaneBlock(store, 1, 100)
    for step in range(12):
        row = append(store, fresh, step)
        assert store.versions[row // 4 * 4 + row % 4] == 0


def test_final_rows_that_begin_a_page_leave_each_lane_its_own_version():
    # Collectors CV2: lanes that were acted for at different times.
    store = make_store()
    block, none = LaneBlock(store, 2, 4), np.zeros(0, np.int64)

    def commit(page: int, final: list[int], versions: list[int]) -> list[int]:
        first = page * 4 + 2 * int(store.arrays.pages[page, USED])
        finals, stamps = np.array(final, np.int64), np.array(versions, np.int32)
        steps = len(versions) // 2
        with store.lock:
            block.commit_written(WrittenSteps(page, steps, finals, none, none, none, stamps))
            return metadata_of(store, "/policy_version", np.arange(first, first + 2 * steps)).tolist()

    assert commit(block.lease_page(), [], [3, 5, 3, 5]) == [3, 5, 3, 5]
    page = block.lease_page()
    assert commit(page, [0, 1], [0, 0]) == [3, 5]
    assert commit(page, [], [7, 9]) == [7, 9]


def test_a_full_store_waits_for_a_batch_that_is_being_copied():
    """replay C4: pages that are free but for a reader are worth the wait; a reader of this thread is not."""
    store = make_store(capacity=8, page_rows=4)
    pages = []
    while True:
        try:
            pages.append(store.acquire(1))
        except StoreFull:
            break
    reading, may_end = threading.Event(), threading.Event()

    def read():
        with store.reading():
            reading.set()
            may_end.wait(10)

    reader = threading.Thread(target=read)
    reader.start()
    assert reading.wait(10)
    store.release(pages[0])
    taken: list[int] = []
    writer = threading.Thread(target=lambda: taken.append(store.acquire(1)))
    writer.start()
    while not store._readers.waiting:
        assert writer.is_alive()
    assert not taken
    may_end.set()
    writer.join(10)
    reader.join(10)
    assert taken == [pages[0]]
    with store.reading():
        store.release(pages[1])
        with pytest.raises(StoreFull):
            store.acquire(1)


# ---- readers that never end ------------------------------------------------------------------------------------------


def filled_store():
    store, pages = make_store(capacity=8, page_rows=4), []
    while True:
        try:
            pages.append(store.acquire(1))
        except StoreFull:
            return store, pages


def test_the_reader_of_a_dead_thread_holds_nobody_up():
    """replay L12: what a thread left behind may be kept, in a traceback; the thread copies no more."""
    store, pages = filled_store()
    kept = []

    def read():
        with store.lock:
            kept.append(store.begin_reading())

    reader = threading.Thread(target=read)
    reader.start()
    reader.join(10)
    assert kept
    store.release(pages[0])
    taken: list[int] = []
    writer = threading.Thread(target=lambda: taken.append(store.acquire(1)), daemon=True)
    writer.start()
    writer.join(10)
    assert taken == [pages[0]]


def test_a_reader_that_nobody_was_given_has_ended():
    """Ctrl-C may come in place of what `begin_reading` returns."""
    store, pages = filled_store()
    with store.lock:
        store.begin_reading()
    store.release(pages[0])
    assert store.acquire(1) == pages[0]


def test_an_interrupt_as_a_reader_begins_leaves_none(monkeypatch):
    store, pages = filled_store()
    begin = store.begin_reading

    def begin_and_interrupt():
        begin()
        raise KeyboardInterrupt

    monkeypatch.setattr(store, "begin_reading", begin_and_interrupt)
    with pytest.raises(KeyboardInterrupt), store.reading():
        pass
    store.release(pages[0])
    assert store.acquire(1) == pages[0]


def test_a_store_refers_to_itself_nowhere():
    # Its memory is given back with the last reference to it, and does not wait for the garbage collector.
    store = Store(Signature.like({"x": np.float32(0)}), capacity=100)
    store.acquire(1)
    freed = weakref.ref(store)
    gc.disable()
    try:
        del store
        assert freed() is None
    finally:
        gc.enable()
