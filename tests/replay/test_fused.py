"""A batch in one call equals a batch by the general way, number by number."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_kernels import fewer

import headrace as hr
from headrace.replay.public import core_of
from headrace.replay.sampling import fused
from headrace.replay.sampling.sampler import Sampling
from headrace.store import copier
from headrace.tables.items.layout import FIRST
from headrace.views import View, transition

SIGNATURE = hr.Signature.like(
    {
        "observation": np.zeros(3, np.float32),
        "action": np.int16(0),
        "reward": np.float64(0),
        "terminated": np.bool_(False),
        "truncated": np.bool_(False),
        "wide": np.zeros(40, np.float32),
        "extra": np.zeros((2, 2), np.uint8),
    }
)


def wide_observations(**stacks: Any) -> dict[str, View]:
    """The transitions of rows whose observation is the wide column."""
    views = transition(2, 0.5, **stacks)
    return {name: views[name].replace(data_col="wide") for name in ("observation", "next_observation")}


PLAIN = {name: View(name) for name in ("reward", "observation", "action", "terminated", "extra")}
QUICK_VIEWS: list[dict[str, View] | None] = [
    None,
    PLAIN,
    {**PLAIN, "next_observation": View("observation", shift=1)},
    {
        "a": View("observation", shift="-2:1", fill="edge"),
        "b": View("action", shift=-1, fill=7),
        "c": View("action"),
    },
    {
        "a": View("reward", shift=[2, 0]),
        "b": View("reward", shift=[2, 0], fill="edge"),
        "again": View("reward"),
    },
    transition(),
    transition(3, 0.9),
    transition(2, 0.5, frame_stack=3),
    {"wide": View("wide")},
    {
        "wide": View("wide"),
        "next": View("wide", shift=1),
        "reward": View("reward", shift=-1),
        "stack": View("wide", shift="-2:0", fill="edge"),
        "filled": View("wide", shift=[-1, 2], fill=7),
        "next_observation": View("observation", shift=1),
    },
    {**transition(2, 0.5, frame_stack=3), **wide_observations(frame_stack=3)},
    {
        **wide_observations(),
        "reward": View("reward"),
        "n": View("wide"),
        "last": transition(2, 0.5)["terminated"].replace(data_col="wide", fill=7),
    },
    {"next_observation": transition()["next_observation"], "discount": View("action"), "n": View("reward")},
]
OTHER_VIEWS: list[dict[str, View]] = [
    {"observation": View("observation", shift=1, mask=True)},
    {"t": View("t"), "action": View("action")},
    {"action": View("action", every=2)},
    {"reward": transition()["reward"], "again": transition()["reward"]},
]


def filled(
    seed: int,
    lanes: int,
    ends: list[int],
    length: int,
    lookahead: int,
    sampler: Any,
    capacity: int | None,
    finals: Sequence[str] = ("observation",),
) -> hr.Replay:
    """Two hundred steps, in episodes that end as told: not at all, with a final row, without one."""
    table = hr.Table("t", sampler=sampler, remover=hr.selectors.Fifo(), max_size=120)
    replay = hr.Replay(SIGNATURE, [table], seed=seed, capacity=capacity)
    random = np.random.default_rng(seed)
    writer = replay.writer(lanes=lanes, items=[hr.ItemRule("t", length, lookahead=lookahead)])
    leading = (lanes,) if lanes > 1 else ()
    for time in range(200 // lanes):
        step = {
            name: (random.integers(0, 100, leading + spec.shape)).astype(spec.dtype)
            for name, spec in SIGNATURE.columns.items()
        }
        writer.append(step)
        end = ends[time % len(ends)]
        if end:
            final = {
                name: random.random(leading + SIGNATURE.columns[name].shape).astype(np.float32)
                for name in finals
            }
            writer.end_episode(None if end == 2 else final)
    return replay


def assert_equal(ours: Any, expected: Any) -> None:
    assert list(ours.data) == list(expected.data)
    for name, values in expected.data.items():
        assert ours.data[name].dtype == values.dtype
        assert ours.data[name].shape == values.shape, name
        np.testing.assert_array_equal(ours.data[name], values, err_msg=name)
    for name in ("keys", "probabilities", "table_size", "priorities", "times_sampled"):
        mine, other = getattr(ours.info, name), getattr(expected.info, name)
        assert mine.dtype == other.dtype
        np.testing.assert_array_equal(mine, other, err_msg=name)
    np.testing.assert_array_equal(ours.mask, expected.mask)


@pytest.mark.filterwarnings("ignore:.* newest of their lanes")
@settings(max_examples=fewer(60), deadline=None)
@given(
    seed=st.integers(0, 1000),
    lanes=st.integers(1, 5),
    ends=st.lists(st.integers(0, 2), min_size=1, max_size=12),
    length=st.integers(1, 3),
    lookahead=st.integers(0, 2),
    prioritized=st.booleans(),
    capacity=st.sampled_from([None, 500]),
    finals=st.sampled_from([("observation",), ("observation", "wide")]),
    views=st.sampled_from(QUICK_VIEWS),
)
def test_one_call_equals_the_general_way(
    seed: int,
    lanes: int,
    ends: list[int],
    length: int,
    lookahead: int,
    prioritized: bool,
    capacity: int | None,
    finals: Sequence[str],
    views: dict[str, View] | None,
) -> None:
    """The same seed and the same calls give the same batches (replay S10), whichever way they are made."""
    sampler = hr.selectors.Prioritized(0.5) if prioritized else hr.selectors.Uniform()
    batches = []
    for general in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            if general:
                patch.setattr(Sampling, "_draw_fused", lambda *_: None)
            with filled(seed, lanes, ends, length, lookahead, sampler, capacity, finals) as replay:
                if not replay.can_sample("t", 1):
                    return
                first = replay.sample("t", 40, views=views)
                if prioritized:
                    replay.update_priorities("t", first.info.keys, np.arange(40) / 3)
                    replay.delete("t", first.info.keys[:10])
                if not replay.can_sample("t", 1):
                    return
                batches.append((first, replay.sample("t", 7, views=views), replay.table("t").statistics()))
    for ours, expected in zip(batches[0][:2], batches[1][:2], strict=True):
        assert_equal(ours, expected)
    assert batches[0][2] == batches[1][2]


def test_pages_of_a_writer_that_is_garbage_are_out_of_sight_either_way() -> None:
    """The page of the last final row goes with the writer that was not closed; both ways take that in (replay S10)."""
    views = QUICK_VIEWS[1]
    found = []
    for general in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            if general:
                patch.setattr(Sampling, "_draw_fused", lambda *_: None)
            with filled(0, 4, [1], 1, 0, hr.selectors.Uniform(), 500) as replay:
                assert core_of(replay).store.has_dropped
                found.append(replay.sample("t", 100, views=views))
    assert_equal(*found)


@pytest.mark.parametrize("views", QUICK_VIEWS)
def test_views_of_columns_are_one_call(views: dict[str, View] | None) -> None:
    with filled(0, 2, [0, 0, 1], 1, 0, hr.selectors.Uniform(), None) as replay:
        assert core_of(replay).sampling.plan(views).fused is not None


@pytest.mark.parametrize("views", OTHER_VIEWS)
def test_other_views_take_the_general_way(views: dict[str, View]) -> None:
    with filled(0, 2, [0, 0, 1], 1, 0, hr.selectors.Uniform(), None) as replay:
        assert core_of(replay).sampling.plan(views).fused is None
        assert len(replay.sample("t", 5, views=views).info.keys) == 5


def test_items_that_leave_or_differ_take_the_general_way() -> None:
    def is_fused(table: hr.Table, *rules: hr.ItemRule) -> bool:
        with hr.Replay(SIGNATURE, [table]) as replay, replay.writer(items=rules) as writer:
            for _ in range(5):
                writer.append(SIGNATURE.zeros())
            return core_of(replay).live_table("t").can_draw_fused

    def table(**changes: Any) -> hr.Table:
        settings: dict[str, Any] = {
            "sampler": hr.selectors.Uniform(),
            "remover": hr.selectors.Fifo(),
            "max_size": 9,
        }
        return hr.Table("t", **{**settings, **changes})

    assert is_fused(table(), hr.ItemRule("t", 2))
    assert not is_fused(table(), hr.ItemRule("t", 2), hr.ItemRule("t", 1))
    assert not is_fused(table(max_times_sampled=2), hr.ItemRule("t", 1))
    assert not is_fused(table(sampler=hr.selectors.Uniform(replacement=False)), hr.ItemRule("t", 1))


def test_a_batch_is_a_copy_and_its_arrays_are_each_others_no_neighbours() -> None:
    """Replay B4: writing to one array changes neither the store nor another array of the batch."""
    views = {"a": View("observation"), "b": View("observation"), "c": View("observation", shift=1)}
    with filled(3, 1, [0], 1, 1, hr.selectors.Uniform(), None) as replay:
        batch = replay.sample("t", 16, views=views)
        again = {name: values.copy() for name, values in batch.data.items()}
        batch.data["a"][:] = -1
        assert (batch.data["b"] == again["b"]).all()
        assert (batch.data["c"] == again["c"]).all()
        assert (
            core_of(replay).store.columns["observation"][: core_of(replay).store.rows_in_pages] >= 0
        ).all()
        later = [replay.sample("t", 16, views=views) for _ in range(3)]
        assert (batch.data["b"] == again["b"]).all()
        assert later[0].data["a"].base is not later[1].data["a"].base


def test_items_of_other_windows_are_noticed() -> None:
    """Batches of one size of a table that changes: with the length of its items, and with their getting unlike."""
    table = hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=4)
    views = {"a": View("observation"), "b": View("observation", shift=-1)}
    batches = []
    for general in (False, True):
        with pytest.MonkeyPatch.context() as patch, hr.Replay(SIGNATURE, [table], seed=7) as replay:
            if general:
                patch.setattr(Sampling, "_draw_fused", lambda *_: None)
            shapes = []
            with replay.writer(history=20) as writer:
                for length in (2, 2, 3, 3, 3, 3, 1, 1, 2, 2, 2, 2):
                    for number in range(3):
                        step = SIGNATURE.zeros()
                        step["observation"][:] = 10 * length + number
                        writer.append(step)
                    writer.create_item("t", length)
                    batch = replay.sample("t", 6, views=views)
                    shapes.append(batch.data["a"].shape[:-1])
                    batches.append(batch)
                assert shapes[0] == (6, 2)
                assert shapes[5] == (6, 3)
    for ours, expected in zip(batches[:12], batches[12:], strict=True):
        assert_equal(ours, expected)


def test_random_numbers_are_those_of_the_generator() -> None:
    """Kernels ask NumPy's generator itself, so its state tells all (replay S10)."""
    with filled(3, 1, [0], 1, 1, hr.selectors.Uniform(), None) as replay:
        random = np.random.default_rng()
        random.bit_generator.state = core_of(replay)._random.bit_generator.state
        expected = random.random(40)
        size = len(replay.table("t"))
        keys = replay.sample("t", 40, views=PLAIN).info.keys
        items = core_of(replay).live_table("t").ring.arrays
        oldest = items.keys[items.ring[FIRST]]
        assert (keys == oldest + (expected * size).astype(np.uint64)).all()
        assert random.bit_generator.state == core_of(replay)._random.bit_generator.state


def test_large_batches_are_not_copied_under_the_lock() -> None:
    with filled(3, 1, [0], 1, 1, hr.selectors.Uniform(), None) as replay:
        plan, live = core_of(replay).sampling.plan(PLAIN), core_of(replay).live_table("t")
        assert plan.fused is not None
        assert core_of(replay).sampling._draw_fused(plan, live, 256) is not None
        assert core_of(replay).sampling._draw_fused(plan, live, 100_000) is None
        assert len(replay.sample("t", 100_000, views=PLAIN).info.keys) == 100_000


def overwriting(monkeypatch: pytest.MonkeyPatch, overwrite: Callable[[], Any]) -> None:
    """Wide columns are copied when another thread has done this."""
    copy = fused.gather

    def copy_later(*arguments: Any) -> Any:
        thread = threading.Thread(target=overwrite)
        thread.start()
        thread.join(20)
        assert not thread.is_alive()
        return copy(*arguments)

    monkeypatch.setattr(fused, "gather", copy_later)


@pytest.mark.parametrize("shift", [0, 1, "-1:0"])
def test_wide_columns_are_copied_without_the_lock_and_from_pages_that_stay(
    monkeypatch: pytest.MonkeyPatch, shift: Any
) -> None:
    """What a batch reads is not written over while it is copied, though its items leave meanwhile (replay B5)."""
    table = hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=40)
    with hr.Replay(SIGNATURE, [table], seed=0, capacity=1000) as replay:
        with replay.writer(items=[hr.ItemRule("t", 1, lookahead=1)]) as writer:
            for number in range(64):
                append_wide(writer, number)
            overwriting(monkeypatch, lambda: [append_wide(writer, 1000 + n) for n in range(300)])
            views = {
                "wide": View("wide", shift=shift, fill="edge"),
                "reward": View("reward", shift=shift, fill="edge"),
            }
            batch = replay.sample("t", 30, views=views)
            assert (batch.data["wide"] == batch.data["reward"][..., None]).all()
            assert batch.data["wide"].max() < 1000


def test_the_guard_of_a_batch_is_older_than_its_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    """A draw lets pending items in, for which the drawn ones may leave: their pages stay all the same (replay B5)."""
    table = hr.Table(
        "t",
        sampler=hr.selectors.Uniform(),
        remover=hr.selectors.Fifo(),
        max_size=40,
        rate_limiter=hr.rate_limiters.SampleToInsertRatio(1, 1, (-1e6, 40.0)),
    )
    with hr.Replay(SIGNATURE, [table], seed=0, capacity=1000) as replay:
        writer = replay.writer(items=[hr.ItemRule("t", 1)])
        for number in range(100):
            append_wide(writer, number)
        assert replay.table("t").statistics().pending_inserts == 60
        overwriting(monkeypatch, lambda: [append_wide(writer, 1000 + n) for n in range(300)])
        batch = replay.sample("t", 60, views={"wide": View("wide"), "reward": View("reward")})
        assert (batch.data["wide"] == batch.data["reward"][:, None]).all()


def test_a_copy_that_finds_no_memory_gives_its_guard_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise MemoryError

    with filled(3, 1, [0], 1, 1, hr.selectors.Uniform(), None) as replay:
        monkeypatch.setattr(fused, "gather", refuse)
        with pytest.raises(MemoryError):
            replay.sample("t", 4)
        assert not core_of(replay).store._readers


@pytest.mark.parametrize("way", ["fused", "general"])
def test_a_file_that_is_closed_while_a_batch_is_copied_gives_no_batch(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, way: str
) -> None:
    """Whoever opens it next may write where the batch is read (replay B5)."""
    if way == "general":
        monkeypatch.setattr(Sampling, "_draw_fused", lambda *_: None)
    table = hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=40)
    replay = hr.Replay(SIGNATURE, [table], path=tmp_path)
    with replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
        append_wide(writer, 1)
    monkeypatch.setattr(fused, "gather", closing(replay, fused.gather))
    monkeypatch.setattr(copier, "gather", closing(replay, copier.gather))
    with pytest.raises(hr.Closed, match="closed while rows were copied"):
        replay.sample("t", 4)


def closing(replay: hr.Replay, copy: Any) -> Any:
    def close_and_copy(*arguments: Any) -> Any:
        replay.close()
        return copy(*arguments)

    return close_and_copy


def append_wide(writer: Any, number: int) -> None:
    step = SIGNATURE.zeros()
    step["wide"][:] = number
    step["reward"] = np.float64(number)
    writer.append(step)


def test_a_tree_is_put_together_from_a_batch_in_one_call() -> None:
    signature = hr.Signature(
        {"observation": {"frame": hr.ArraySpec((100,), np.uint8), "speed": hr.ArraySpec((), np.float32)}}
    )
    table = hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=9)
    with hr.Replay(signature, [table]) as replay, replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
        writer.append({"observation": {"frame": np.full(100, 3, np.uint8), "speed": np.float32(0.5)}})
        assert core_of(replay).sampling.plan(None).fused is not None
        observation = replay.sample("t", 2).data["observation"]
        assert observation["frame"].tolist() == [[3] * 100] * 2
        assert observation["speed"].tolist() == [0.5, 0.5]


def test_sequences_whose_pages_do_not_lie_side_by_side() -> None:
    """Two writers take pages in turn, so the rows of each go on in the page after the next."""
    signature = hr.Signature.like({"x": 0})
    table = hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=400)
    with hr.Replay(signature, [table], capacity=2000, seed=0) as replay:
        with (
            replay.writer(items=[hr.ItemRule("t", 5)]) as one,
            replay.writer(items=[hr.ItemRule("t", 5)]) as other,
        ):
            for step in range(200):
                one.append({"x": step})
                other.append({"x": 1000 + step})
            shown = replay.sample("t", 256).data["x"]
    assert (shown == shown[:, :1] + np.arange(5)).all()
