"""Batches: shapes, masks, what is told of each draw, and that they are copies (replay B1 to B4)."""

import numpy as np
import pytest

import headrace as hr
from headrace.replay.public import core_of
from headrace.replay.sampling.fused import may_be_small
from headrace.tables.description.selectors import Fifo, Lifo, Uniform
from headrace.tables.live_table import LiveTable

SIGNATURE = hr.Signature.like(
    {
        "n": np.int64(0),
        "pixels": np.zeros((3, 2), np.uint8),
        "deep": ({"x": np.float32(0)}, np.zeros(2, np.int16)),
    }
)


def step(number):
    return {
        "n": number,
        "pixels": np.full((3, 2), number % 256, np.uint8),
        "deep": ({"x": np.float32(number / 2)}, np.array([number, -number], np.int16)),
    }


def new_replay(sampler=None, **settings):
    table = hr.Table("t", sampler=sampler or Uniform(), remover=Fifo(), max_size=1000, **settings)
    return hr.Replay(SIGNATURE, [table], seed=0)


def check(data, numbers):
    """Every leaf says the same number; rows that are no rows are zeros."""
    numbers = np.asarray(numbers)
    assert data["n"].tolist() == numbers.tolist()
    assert data["pixels"].shape == (*numbers.shape, 3, 2)
    assert (data["pixels"] == (numbers % 256)[..., None, None]).all()
    assert (data["deep"][0]["x"] == numbers / 2).all()
    assert (data["deep"][1] == np.stack([numbers, -numbers], -1)).all()
    assert [leaf.dtype for leaf in (data["pixels"], data["deep"][0]["x"], data["deep"][1])] == [
        np.uint8,
        np.float32,
        np.int16,
    ]


def test_items_of_one_step_have_no_time_axis():
    # B1
    with new_replay() as replay:
        with replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
            for number in range(10):
                writer.append(step(number))
        batch = replay.sample("t", 32)
        check(batch.data, batch.info.keys.astype(int) - 1)
        assert batch.mask is None


def test_sequences_have_a_time_axis_and_no_mask_without_padding():
    # B1, B2
    with new_replay() as replay:
        with replay.writer(items=[hr.ItemRule("t", 4)]) as writer:
            for number in range(10):
                writer.append(step(number))
        batch = replay.sample("t", 32)
        check(batch.data, (batch.info.keys.astype(int) - 1)[:, None] + np.arange(4))
        assert batch.mask is None


def test_shorter_items_are_filled_with_zeros_at_the_end():
    # B1, B2: L is the longest item in this batch, not of the table
    with new_replay(Lifo(), max_times_sampled=1) as replay:
        with replay.writer(history=5) as writer:
            for number in range(1, 6):
                writer.append(step(number))
            for length in (5, 1, 3, 2, 2):
                writer.create_item("t", length)
        batch = replay.sample("t", 2)
        check(batch.data, [[4, 5], [4, 5]])
        assert batch.mask is None
        batch = replay.sample("t", 2)
        check(batch.data, [[3, 4, 5], [5, 0, 0]])
        assert batch.mask.dtype == np.bool_
        assert batch.mask.tolist() == [[True] * 3, [True, False, False]]
        check(replay.sample("t", 1).data, [[1, 2, 3, 4, 5]])


def test_a_table_that_has_had_sequences_keeps_the_time_axis():
    # B1: "while the table has only been given items of one step"
    with new_replay(Lifo(), max_times_sampled=1) as replay, replay.writer(history=2) as writer:
        writer.append(step(1))
        writer.append(step(2))
        writer.create_item("t", 1)
        check(replay.sample("t", 1).data, [2])
        writer.create_item("t", 2)
        check(replay.sample("t", 1).data, [[1, 2]])
        writer.create_item("t", 1)
        check(replay.sample("t", 1).data, [[2]])


def test_padded_items_carry_a_mask():
    # B2: invented rows are no rows
    with new_replay(Fifo(), max_times_sampled=1) as replay:
        with replay.writer(items=[hr.ItemRule("t", 4, 4, hr.EndOfEpisode.PAD)]) as writer:
            for number in range(1, 7):
                writer.append(step(number))
            writer.end_episode()
        batch = replay.sample("t", 2)
        check(batch.data, [[1, 2, 3, 4], [5, 6, 0, 0]])
        assert batch.mask.tolist() == [[True] * 4, [True, True, False, False]]


def test_what_is_told_has_the_dtypes_of_b3():
    with new_replay() as replay:
        with replay.writer(items=[hr.ItemRule("t", 1, priority=2.5)]) as writer:
            for number in range(4):
                writer.append(step(number))
        info = replay.sample("t", 7).info
        told = {
            "keys": np.uint64,
            "probabilities": np.float64,
            "table_size": np.int64,
            "priorities": np.float64,
            "times_sampled": np.int64,
        }
        for name, dtype in told.items():
            array = getattr(info, name)
            assert (array.dtype, array.shape) == (dtype, (7,)), name
        assert info.table_size.tolist() == [4] * 7
        assert info.priorities.tolist() == [2.5] * 7
        # This draw is included.
        for key in np.unique(info.keys):
            assert info.times_sampled[info.keys == key].tolist() == list(
                range(1, (info.keys == key).sum() + 1)
            )


@pytest.mark.parametrize("length", [1, 3])
def test_a_batch_never_changes_and_changes_nothing(length):
    # B4: not when it is written to, not when its pages are used again, not by the next sample
    table = hr.Table("t", sampler=Uniform(), remover=Fifo(), max_size=20)
    with hr.Replay(SIGNATURE, [table], capacity=64, seed=0) as replay:
        with replay.writer(items=[hr.ItemRule("t", length)]) as writer:
            for number in range(1, 31):
                writer.append(step(number))
            batch = replay.sample("t", 8)
            numbers = batch.data["n"].copy()
            keys = batch.info.keys.copy()
            told = [getattr(batch.info, name).copy() for name in batch.info.__slots__]
            for number in range(31, 300):
                writer.append(step(number))
            for _ in range(5):
                replay.sample("t", 8)
            check(batch.data, numbers)
            for before, name in zip(told, batch.info.__slots__, strict=True):
                assert np.array_equal(before, getattr(batch.info, name)), name
            assert (np.atleast_2d(numbers.T)[0] == keys.astype(int)).all()
            # Writing to a batch.
            late = replay.sample("t", 500)
            late.data["n"][:] = -1
            late.data["pixels"][:] = 255
            late.data["deep"][0]["x"][:] = np.nan
            late.info.keys[:] = 0
            late.info.times_sampled[:] = 0
            again = replay.sample("t", 500)
            check(again.data, again.data["n"])
            assert (again.data["n"] > 0).all()
            assert (again.info.times_sampled > 0).all()


def test_two_batches_share_no_memory():
    # B4
    with new_replay(Fifo()) as replay:
        with replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
            writer.append(step(1))
        one, other = replay.sample("t", 4), replay.sample("t", 4)
        for name in SIGNATURE.columns:
            a, b = SIGNATURE.flatten(one.data)[name], SIGNATURE.flatten(other.data)[name]
            assert not np.shares_memory(a, b)
            assert not np.shares_memory(a, core_of(replay).store.columns[name])
            assert a.flags.writeable


# ---- reset ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_table_that_was_reset_gives_items_of_one_step_without_a_time_axis(tmp_path, on_disk):
    # B1, T8: "has only been given items of one step" is counted anew, as all counts are.
    table = hr.Table("t", sampler=Fifo(), remover=Fifo(), max_size=100)
    with hr.Replay(SIGNATURE, [table], path=tmp_path / "store" if on_disk else None) as replay:
        with replay.writer() as writer:
            for number in range(3):
                writer.append(step(number))
                writer.create_item("t", number + 1)
            assert replay.sample("t", 2).data["n"].shape == (2, 1)
            replay.reset("t")
            writer.create_item("t", 1)
            check(replay.sample("t", 2).data, [2, 2])
            writer.create_item("t", 2)
            assert replay.sample("t", 1).data["n"].shape == (1, 1), "longer items were given since"
    if on_disk:
        with hr.Replay(SIGNATURE, [table], path=tmp_path / "store") as replay:
            assert replay.sample("t", 1).data["n"].shape == (1, 1)
            replay.reset("t")
        with hr.Replay(SIGNATURE, [table], path=tmp_path / "store") as replay, replay.writer() as writer:
            writer.append(step(7))
            writer.create_item("t", 1)
            check(replay.sample("t", 1).data, [7])


def test_what_waits_while_a_table_is_reset_is_told_apart_from_what_was_in_it():
    # B1, T8: pending items go in by the fresh counts, and are sequences if they are.
    table = hr.Table("t", sampler=Fifo(), remover=Fifo(), max_size=2, rate_limiter=hr.rate_limiters.Queue(2))
    with hr.Replay(SIGNATURE, [table]) as replay, replay.writer() as writer:
        for number in range(3):
            writer.append(step(number))
            writer.create_item("t", 1)
        writer.create_item("t", 2)
        assert writer.pending == 2
        replay.reset("t")
        check(replay.sample("t", 1).data, [[2]])


def test_a_batch_gives_its_parts_by_name():
    # replay B1, views V16: as collectors' batches do
    with new_replay() as replay:
        with replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
            writer.append(step(3))
        batch = replay.sample("t", 2)
        assert batch["n"] is batch.data["n"]
        assert batch["deep"] is batch.data["deep"]
        assert batch["deep/0/x"] is batch.data["deep"][0]["x"]
        shown = replay.sample("t", 2, views={"a/b": hr.View("n"), "tree": hr.View("deep")})
        assert shown["a/b"] is shown.data["a/b"]
        assert shown["tree/1"] is shown.data["tree"][1]
        for name in ("m", "deep/2", "deep/0/x/y", ""):
            with pytest.raises(KeyError, match="there are n, pixels, deep"):
                batch[name]
        with pytest.raises(TypeError, match="expected the name of a column, got 0"):
            list(batch)


@pytest.mark.parametrize("example", [np.float32(0), (np.float32(0), np.int64(0))])
def test_parts_of_trees_that_are_no_dict(example):
    table = hr.Table("t", sampler=Uniform(), remover=Fifo(), max_size=9)
    with hr.Replay(hr.Signature.like(example), [table]) as replay:
        with replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
            writer.append(example)
        batch = replay.sample("t", 2)
        for name, values in replay.signature.flatten(batch.data).items():
            assert batch[name] is values
        with pytest.raises(KeyError, match="no column 'x'"):
            batch["x"]


@pytest.mark.parametrize("batch_size", [2**32, 2**62, 2**70])
def test_a_batch_larger_than_any_table_is_refused(batch_size):
    with new_replay() as replay:
        with replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
            writer.append(step(3))
        with pytest.raises(ValueError, match=f"batch_size: expected at most 4294967280, got {batch_size}"):
            replay.sample("t", batch_size)
        assert replay.statistics().tables["t"].samples == 0


def test_a_batch_that_memory_does_not_hold_says_so(monkeypatch):
    def refuse(self, n):
        raise MemoryError("Unable to allocate 64.0 GiB for an array with shape (4, 2147483648)")

    with new_replay() as replay:
        with replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
            writer.append(step(3))
        monkeypatch.setattr(LiveTable, "draw", refuse)
        with pytest.raises(MemoryError, match="no memory for a batch of 2147483648 items of table 't'"):
            replay.sample("t", 2**31)
        monkeypatch.undo()
        assert replay.sample("t", 1)["n"].tolist() == [3]


def test_large_batches_need_no_description_of_their_memory():
    # NumPy describes fields up to 2 GiB; this batch was refused with its text.
    table = hr.Table("t", sampler=Uniform(), remover=Fifo(), max_size=9)
    with hr.Replay(hr.Signature.like({"x": np.zeros(1, np.uint8)}), [table]) as replay:
        with replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
            writer.append({"x": [3]})
        views = {"x": hr.View(shift=[0] * 5000)}
        plan = core_of(replay).sampling.plan(views)
        assert not may_be_small(plan.fused, 2**40, 1)
        assert may_be_small(plan.fused, 1, 1)
        assert replay.sample("t", 2**19)["x"].shape == (2**19, 1)
