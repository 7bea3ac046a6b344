"""Batches that show what a worker or this process wrote in place, and batches that copy it, are the same to a user."""

import contextlib
import os
import threading
from functools import partial

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.batches.conversion import over_same_memory
from headrace.collectors.batches import lent_pages
from headrace.collectors.batches.lent_pages import LentPages
from headrace.leases.grantor import Segment
from headrace.spec import ArraySpec, Signature
from headrace.store.memory.arena import Arena
from headrace.store.store import Store
from headrace.testing import CounterEnv, in_forked_child
from tests.collectors.conftest import check_counters

NUM_ENVS, STEPS = 2, 6


@pytest.fixture(params=["in place", "copied"])
def form(request, monkeypatch):
    """How the images of batches are made; the images of these tests are small."""
    monkeypatch.setattr(lent_pages, "_LEAST_NBYTES", 0)
    if request.param == "copied":
        monkeypatch.setattr(lent_pages, "_KEPT_FREE", 1 << 30)
    return request.param


@pytest.fixture(params=[hr.AsyncCollector, hr.Collector])
def kind(request):
    return request.param


def collecting(lengths=(4, 4), kind=hr.AsyncCollector, **arguments):
    made = iter([CounterEnv(length, copy=copy, layout="image") for copy, length in enumerate(lengths)])
    size = NUM_ENVS * STEPS
    return kind(lambda: next(made), num_envs=NUM_ENVS, frames_per_batch=size, **arguments)


def is_in_place(batch):
    """Whether the images lie as the worker wrote them: all environments of a step, then the next step."""
    strides = batch["observation"].strides
    return strides[0] < strides[1]


def is_next_in_place(batch):
    """Whether the next observations are those that the worker wrote: one step further on in the memory."""
    observation, following = batch["observation"], batch["next_observation"]
    return following.ctypes.data - observation.ctypes.data == observation.strides[1]


def numbers(batch):
    """The batch with the three numbers of each image in place of the image."""
    shown = {name: batch[name][..., 0, 0, :].astype(np.int64) for name in ("observation", "next_observation")}
    for name, column in shown.items():
        assert (batch[name] == column[..., None, None, :]).all()
    return batch.with_columns(shown)


def copied(batch):
    return {name: column.copy() for name, column in batch.items()}


def check_same(batch, before):
    for name, column in before.items():
        np.testing.assert_array_equal(batch[name], column, err_msg=name)


def test_batches_are_the_same_in_both_forms_and_never_change(form, kind):
    # CB4, CB8: observations that follow one another over steps, ends of episodes, and batches; kept while the worker
    # fills every page several times, and after its memory is released.
    lengths = [[1, 4, 6, 9], 100]
    with collecting(lengths, kind) as collector:
        batches = [collector.next(timeout=40) for _ in range(8)]
        check_counters([numbers(batch) for batch in batches], lengths)
        kept = [(batches[0], copied(batches[0]))]
        part = batches.pop(1)["observation"][1, 2:]
        shown = part.copy()
        del batches
        for number in range(50):
            batch = collector.next(timeout=40)
            if number % 20 == 3:
                kept.append((batch, copied(batch)))
        for batch, before in kept:
            check_same(batch, before)
        np.testing.assert_array_equal(part, shown)
    del collector
    for batch, before in kept:
        assert is_in_place(batch) == (form == "in place")
        check_same(batch, before)


@given(
    lengths=st.lists(st.lists(st.integers(1, 20), min_size=1, max_size=5), min_size=1, max_size=3),
    steps=st.integers(1, 8),
    resets=st.booleans(),
)
@settings(max_examples=10, deadline=None)
def test_next_observations_in_place_are_those_of_copies(lengths, steps, resets):
    # CB4, CB8: a view where no episode ends before the last step, copies elsewhere; nobody can see which, but by the
    # memory.
    def collected(least_nbytes, kept_free):
        made = iter([CounterEnv(each, copy=copy, layout="image") for copy, each in enumerate(lengths)])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lent_pages, "_LEAST_NBYTES", least_nbytes)
            patch.setattr(lent_pages, "_KEPT_FREE", kept_free)
            size = len(lengths) * steps
            with hr.Collector(
                lambda: next(made),
                num_envs=len(lengths),
                frames_per_batch=size,
                reset_at_each_iter=resets,
                seed=0,
            ) as collector:
                return [collector.next() for _ in range(6)]

    for batch, copy in zip(collected(0, 6), collected(1 << 40, 1 << 30), strict=True):
        check_same(batch, copy)
        assert {name: (column.dtype, column.shape) for name, column in batch.items()} == {
            name: (column.dtype, column.shape) for name, column in copy.items()
        }
        assert is_next_in_place(batch) == (not (batch["terminated"] | batch["truncated"])[:, :-1].any())
        assert not np.shares_memory(copy["observation"], copy["next_observation"])
        names = ("observation", "next_observation")
        assert [batch[name].flags.writeable for name in names] == [False, False]
        assert batch["next_observation"].strides == batch["observation"].strides


def test_final_rows_of_episodes_that_end_with_the_rollout_are_in_place(monkeypatch, kind):
    # CB4, CB8: they stand below the last step; the next batch begins with the observations of the reset.
    monkeypatch.setattr(lent_pages, "_LEAST_NBYTES", 0)
    lengths = [STEPS, 2 * STEPS]
    with collecting(lengths, kind) as collector:
        batches = [collector.next(timeout=40) for _ in range(8)]
    assert is_next_in_place(batches[0])
    if kind is hr.Collector:  # A worker that is given no page in time leaves the last one later.
        assert all(map(is_next_in_place, batches))
    check_counters([numbers(batch) for batch in batches], lengths)


def test_a_page_is_held_while_either_observations_are_alive(monkeypatch, kind):
    # CB8: also what follows the last step, which the next rollout begins with.
    monkeypatch.setattr(lent_pages, "_LEAST_NBYTES", 0)
    with collecting([100, 100], kind) as collector:
        kept = []
        for number in range(4):
            batch = collector.next(timeout=40)
            assert is_next_in_place(batch)
            assert np.shares_memory(batch["observation"], batch["next_observation"])
            array = batch[("observation", "next_observation")[number % 2]]
            kept.append((array, array.copy()))
        del batch
        for _ in range(40):
            collector.next(timeout=40)
        for array, before in kept:
            np.testing.assert_array_equal(array, before)


@pytest.mark.parametrize("length", [4, 100], ids=["ends", "no ends"])
def test_tensors_can_be_written_and_do_not_overlap(form, length):
    # CB2, CB8: torch knows no read-only tensors, so nothing may be seen through another one.
    pytest.importorskip("torch")
    with collecting([length, length], hr.Collector) as collector:
        batch = collector.next()
        before = copied(batch)
        check_counters([numbers(batch)], [length] * NUM_ENVS)
        tensors = batch.torch()
        assert tensors["observation"].data_ptr() == batch["observation"].ctypes.data
        is_copied = form == "in place" and length == 100
        assert (tensors["next_observation"].data_ptr() != batch["next_observation"].ctypes.data) == is_copied
        for name, tensor in tensors.items():
            np.testing.assert_array_equal(tensor.numpy(), before[name])
        tensors["observation"].fill_(77)
        np.testing.assert_array_equal(tensors["next_observation"].numpy(), before["next_observation"])


def test_what_a_user_gives_in_place_of_observations_is_copied_if_it_is_read_only(form):
    # CB2: the arrays of a user are not to be changed through a tensor.
    pytest.importorskip("torch")
    with collecting(kind=hr.Collector) as collector:
        batch = collector.next()
    own = batch["observation"].copy()
    own.flags.writeable = False
    batch.with_columns({"observation": own}).torch()["observation"].fill_(77)
    assert not (own == 77).any()


def test_a_batch_is_the_users_own(form, kind):
    # CB8: what is written into one batch is in no other one, and not in what the worker continues from. Observations
    # in place are read-only, as the next ones may lie in the same memory.
    with collecting(kind=kind) as collector:
        batches = []
        for _ in range(8):
            batch = collector.next(timeout=40)
            batches.append(numbers(hr.Batch(copied(batch))))
            for name, column in batch.items():
                assert column.flags.writeable == (form == "copied" or "observation" not in name)
                over_same_memory(column)[...] = 1
        check_counters(batches, [4] * NUM_ENVS)


def test_masked_rows_are_zeros_in_both_forms(form, kind):
    # CB6: the environment takes a step for each reset, whose image must not show through.
    def make():
        return gymnasium.vector.SyncVectorEnv(
            [partial(CounterEnv, length, copy=copy, layout="image") for copy, length in enumerate([3, 2])],
            autoreset_mode=gymnasium.vector.AutoresetMode.NEXT_STEP,
        )

    with kind(make, frames_per_batch=NUM_ENVS * STEPS) as collector:
        batches = [collector.next(timeout=40) for _ in range(6)]
    assert is_in_place(batches[0]) == (form == "in place")
    assert any(not batch["mask"].all() for batch in batches)
    for batch in batches:
        for name in ("observation", "next_observation"):
            assert not batch[name][~batch["mask"]].any(), name
    check_counters([numbers(batch) for batch in batches], [3, 2])


def test_a_learner_that_keeps_all_batches_gets_copies_when_pages_run_out(monkeypatch, kind):
    # CB8: memory is bounded, and no batch waits for pages.
    monkeypatch.setattr(lent_pages, "_LEAST_NBYTES", 0)
    with collecting(kind=kind) as collector:
        batches = [collector.next(timeout=40) for _ in range(40)]
        forms = [is_in_place(batch) for batch in batches]
        assert forms[0]
        assert not any(forms[24:])
        check_counters([numbers(batch) for batch in batches], [4] * NUM_ENVS)
        del batches
        assert any(is_in_place(collector.next(timeout=40)) for _ in range(6))


def test_a_state_keeps_the_batches_that_wait(monkeypatch):
    # CQ3: also while the collector goes on.
    monkeypatch.setattr(lent_pages, "_LEAST_NBYTES", 0)
    with collecting(seed=1) as collector:
        collector.next(timeout=40)
        # A batch of which the state has a part only is assembled by a copy.
        group = collector._group
        with group.status.changed:
            assert group.status.changed.wait_for(lambda: len(group.collection.batches) == 2, 40)
        state = collector.state_dict()
        expected = [copied(collector.next(timeout=40)) for _ in range(2)]
        for _ in range(30):
            collector.next(timeout=40)
        collector.load_state_dict(state)
        for before in expected:
            batch = collector.next(timeout=40)
            assert is_in_place(batch)
            check_same(batch, before)


def test_what_a_user_writes_into_a_batch_is_not_in_the_replay(form):
    # CF1, CH1: neither before, by a hook, which is refused, nor after.
    signature = hr.collectors.signature(lambda: CounterEnv(4, layout="image"))
    with hr.Replay(signature, [hr.Table.uniform(99, name="all")], capacity=999) as replay:
        with collecting(kind=hr.Collector, replay_buffer=replay) as collector:
            refused = []
            collector.set_post_collect_hook(
                lambda batch: refused.append(not batch["observation"].flags.writeable)
            )
            for _ in range(3):
                batch = collector.next()
                over_same_memory(batch["observation"])[...] = 77
        assert refused == [True] * 3
        assert not (replay.sample("all", 50).data["observation"] == 77).any()


def test_pages_of_this_process_are_used_again_after_a_fork(monkeypatch):
    # The child has a copy of private memory.
    monkeypatch.setattr(lent_pages, "_LEAST_NBYTES", 0)
    with collecting(kind=hr.Collector) as collector:
        for _ in range(30):
            batch = collector.next()
            assert in_forked_child(batch["observation"].sum) == batch["observation"].sum()
            assert is_in_place(batch)


# ---- pages ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def store(monkeypatch):
    monkeypatch.setattr(lent_pages, "_LEAST_NBYTES", 0)
    signature = Signature({"image": ArraySpec((100,), np.uint8), "reward": ArraySpec((), np.float32)})
    store = Store(signature, page_rows=8, num_pages=16, make_arena=Arena.shared)
    yield store
    store.close()


def lent(store, lender, number):
    """A page full of a number, lent."""
    page = store.acquire(lanes=2)
    store.columns["image"][8 * page : 8 * page + 8] = number
    columns = lender.lend([Segment(page, 0, 2), Segment(page, 2, 3)], 2)
    store.release(page)
    return page, columns


def test_a_page_is_used_again_when_the_last_array_over_it_is_garbage(store):
    page, columns = lent(store, LentPages(store), 1)
    assert {name: column.shape for name, column in columns.items()} == {"image": (2, 4, 100)}
    part = columns.pop("image")[1, 2, 5:]
    others = [store.acquire(lanes=2) for _ in range(3)]
    assert page not in others
    assert (part == 1).all()
    del part
    assert store.acquire(lanes=2) == page


@pytest.mark.parametrize(
    "segments",
    [[Segment(0, 0, 2)], [Segment(0, 1, 3)], [Segment(0, 2, 3), Segment(1, 0, 2)], [Segment(0, 0, 4)]],
    ids=["short", "late", "two pages", "nothing after it"],
)
def test_only_a_whole_page_is_lent(store, segments):
    for _ in range(2):
        store.acquire(lanes=2)
    assert LentPages(store).lend(segments, 2) == {}


def test_pages_stay_free_for_the_writer(store):
    lender = LentPages(store)
    kept = [lent(store, lender, number)[1] for number in range(16 - lent_pages._KEPT_FREE + 1)]
    assert [bool(columns) for columns in kept] == [True] * (len(kept) - 1) + [False]
    assert [columns["image"][0, 0, 0] for columns in kept[:-1]] == list(range(len(kept) - 1))


def test_short_columns_are_not_lent(store, monkeypatch):
    monkeypatch.setattr(lent_pages, "_LEAST_NBYTES", 801)
    assert lent(store, LentPages(store), 1)[1] == {}


# ---- forks ---------------------------------------------------------------------------------------------------------


def test_a_child_and_its_parent_do_not_see_what_the_other_writes(store):
    # CB8: memory that two processes share would show it.
    _, columns = lent(store, LentPages(store), 1)
    image = columns["image"]
    forked, wrote = os.pipe(), os.pipe()

    def write():
        os.read(forked[0], 1)
        image[...] = 2
        os.write(wrote[1], b"x")

    def look():
        os.write(forked[1], b"x")
        os.read(wrote[0], 1)
        seen = image.tolist()
        image[...] = 3
        return seen

    thread = threading.Thread(target=write)
    thread.start()
    try:
        assert np.all(np.array(in_forked_child(look)) == 1)
    finally:
        with contextlib.suppress(OSError):
            os.write(forked[1], b"x")
        thread.join()
        for end in (*forked, *wrote):
            os.close(end)
    assert (image == 2).all()


def test_the_parent_uses_a_page_that_was_lent_at_a_fork_never_again(store):
    # The child may still be copying it.
    page, columns = lent(store, LentPages(store), 1)
    assert in_forked_child(columns["image"].min) == 1
    columns.clear()
    free = store.free_pages()
    assert page not in [store.acquire(lanes=2) for _ in range(free)]


def test_a_child_has_the_batches_of_its_parent(monkeypatch):
    # While the collector goes on, and when it is gone.
    monkeypatch.setattr(lent_pages, "_LEAST_NBYTES", 0)

    def change():
        seen = {name: column.tolist() for name, column in batch.items()}
        over_same_memory(batch["observation"])[...] = 9
        return seen, int(batch["observation"].min())

    with collecting() as collector:
        batch = collector.next(timeout=40)
        before = copied(batch)
        seen, changed = in_forked_child(change)
        check_same(seen, before)
        assert is_in_place(batch)
        assert changed == 9
        for _ in range(10):
            collector.next(timeout=40)
    assert in_forked_child(change)[1] == 9
    check_same(batch, before)
