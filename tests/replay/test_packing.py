"""Batches without their padding, and back (replay B1, B2)."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.tables.description.rules import WholeEpisodes
from headrace.views import View

SIGNATURE = hr.Signature.like(
    {"observation": {"camera": np.zeros((2, 2), np.uint8), "row": 0}, "action": 0, "reward": np.float32(0),
     "terminated": False, "truncated": False}
)  # fmt: skip


def filled(lengths: list[int], rules: list[Any]) -> hr.Replay:
    """Episodes of rows 1, 2, ...; each row tells its number."""
    table = hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=1000)
    replay = hr.Replay(SIGNATURE, [table], seed=0)
    count = 0
    with replay.writer(items=rules) as writer:
        for length in lengths:
            for _ in range(length):
                count += 1
                writer.append(
                    {
                        "observation": seen(count),
                        "action": count,
                        "reward": count,
                        "terminated": False,
                        "truncated": False,
                    }
                )
            count += 1
            writer.end_episode({"observation": seen(count)})
    return replay


def seen(row: int) -> dict[str, Any]:
    return {"camera": np.full((2, 2), row % 251, np.uint8), "row": row}


ENDS = [hr.EndOfEpisode.TRUNCATE, hr.EndOfEpisode.PAD, hr.EndOfEpisode.TILE, hr.EndOfEpisode.DROP]


@settings(max_examples=40)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=6),
    st.integers(2, 5),
    st.sampled_from(ENDS),
    st.integers(1, 6),
    st.sampled_from([None, "views"]),
)
def test_packed_rows_are_the_items_one_after_another(
    lengths: list[int], length: int, end: Any, every: int, views: Any
):
    """Item by item, without padding; `pad` gives the batch back."""
    presented = {
        "row": View("observation/row"),
        "stack": View("observation", shift="-1:0", fill="edge"),
        "kept": View("observation/row", every=every, mask=True),
    }
    with filled(lengths, [hr.ItemRule("t", length, stride=2, end=end)]) as replay:
        if not replay.can_sample("t", 1):
            return
        batch = replay.sample("t", 7, views=presented if views else None)
    packed = batch.pack()
    rows = batch.data["row"] if views else batch.data["observation"]["row"]
    mask = np.ones(rows.shape, bool) if batch.mask is None else batch.mask
    expected = [row[real].tolist() for row, real in zip(rows, mask, strict=True)]
    flat = packed.data["row"] if views else packed.data["observation"]["row"]
    assert packed.lengths.tolist() == [len(item) for item in expected]
    assert packed.lengths.dtype == packed.offsets.dtype == np.int64
    assert flat.tolist() == list(chain(*expected))
    assert [flat[a:b].tolist() for a, b in zip(packed.offsets, packed.offsets[1:], strict=False)] == expected
    np.testing.assert_array_equal(packed.mask, mask)
    assert packed.info is batch.info
    if views:
        assert packed.data["stack"]["camera"].shape == (len(flat), 2, 2, 2)
        kept = [item[::every] for item in expected]
        assert packed.data["kept"].tolist() == list(chain(*kept))
        assert packed.data["kept_mask"].all()
    again = packed.pad(packed.data)
    for name in batch.data:
        one, other = again[name], batch.data[name]
        for leaf in other if isinstance(other, dict) else [...]:
            shown = other[leaf]
            if name == "stack":  # An invented row shows zeros, an edge or not.
                shown = np.where(mask.reshape(*mask.shape, *[1] * (shown.ndim - 2)), shown, 0)
            np.testing.assert_array_equal(one[leaf], shown)
            assert one[leaf].dtype == shown.dtype


def test_state_at_the_start_of_each_item_is_one_row_each():
    """A view of one row an item: `[B, ...]`, also where the longest item of a batch has one row."""
    views = {"state": View("observation/row", every=4), "row": View("observation/row")}
    rule = hr.ItemRule("t", 4, stride=1, end=hr.EndOfEpisode.TILE)
    with filled([1, 6], [rule]) as replay:
        for batch_size in (1, 1, 1, 1, 20):
            packed = replay.sample("t", batch_size, views=views).pack()
            assert packed.data["state"].tolist() == packed.data["row"][packed.offsets[:-1]].tolist()


def test_items_of_one_step_are_packed_already():
    for views in (None, {"row": View("observation/row"), "two": View("action", shift="0:1")}):
        with filled([5], [hr.ItemRule("t", 1)]) as replay:
            batch = replay.sample("t", 6, views=views)
        packed = batch.pack()
        assert packed.lengths.tolist() == [1] * 6
        assert packed.offsets.tolist() == list(range(7))
        assert packed.data is batch.data
        assert packed.pad(packed.data) is packed.data
        assert packed.mask.shape == (6, 1)


def test_whole_episodes_of_different_lengths():
    """An item an episode, its final row included."""
    table = hr.Table(
        "t", sampler=hr.selectors.Fifo(), remover=hr.selectors.Fifo(), max_size=9, max_times_sampled=1
    )
    signature = hr.Signature.like(
        {"observation": 0, "action": 0, "reward": 0.0, "terminated": False, "truncated": False}
    )
    with hr.Replay(signature, [table], seed=0) as replay:
        with hr.EpisodeWriter(replay, "t", max_length=10) as writer:
            for length in (2, 4):
                writer.add_first(0)
                for t in range(length):
                    writer.add(t, 1.0, t == length - 1, False, 10 * length + t)
        batch = replay.sample("t", 2)
    assert batch.mask is not None
    assert batch.data["observation"].tolist() == [[0, 20, 21, 0, 0], [0, 40, 41, 42, 43]]
    packed = batch.pack()
    assert packed.lengths.tolist() == [3, 5]
    assert packed.data["observation"].tolist() == [0, 20, 21, 0, 40, 41, 42, 43]
    assert packed.pad(packed.data["reward"]).sum(1).tolist() == [2, 4]


def test_an_episode_longer_than_the_rule_says_is_no_item():
    """Of at most `length` rows, the final row included; the writer of lanes keeps no episode back."""
    rule = WholeEpisodes("t", 4)
    with hr.Replay(hr.Signature.like({"x": 0}), [hr.Table.queue("t", 9)]) as replay:
        with replay.writer(items=[rule]) as writer:
            for length in (4, 3, 2):
                for step in range(length):
                    writer.append({"x": 10 * length + step})
                writer.end_episode({"x": 10 * length + length})
        assert replay.statistics().tables["t"].size == 2
        assert replay.sample("t", 2).data["x"].tolist() == [[30, 31, 32, 33], [20, 21, 22, 0]]


def test_other_rows_than_those_of_the_batch():
    rule = hr.ItemRule("t", 4, stride=4, end=hr.EndOfEpisode.PAD)
    with filled([5], [rule]) as replay:
        packed = replay.sample("t", 3).pack()
    with pytest.raises(ValueError, match=r"expected \d+ rows.*got 1"):
        packed.pad(np.zeros(1))


def test_tensors_are_packed_as_arrays_are():
    """A loader's batch; what torch's packed sequences are made of."""
    torch = pytest.importorskip("torch")
    views = {
        "row": View("observation/row"),
        "state": View("observation/row", every=4),
        "reward": View("reward"),
    }
    rule = hr.ItemRule("t", 4, stride=4, end=hr.EndOfEpisode.TRUNCATE)
    with filled([5, 2, 9], [rule]) as replay:
        with hr.loaders.Loader(replay, "t", 6, views=views, to="torch", prefetch=0) as loader:
            batch = next(iter(loader))
            moved = batch.to("cpu").pack()
    packed = batch.pack()
    assert packed.data["row"].tolist() == batch.data["row"][batch.mask].tolist()
    assert packed.data["state"].tolist() == batch.data["state"][:, 0].tolist()
    padded = packed.pad(packed.data["reward"])
    assert isinstance(padded, torch.Tensor)
    assert padded.tolist() == batch.data["reward"].tolist()
    assert moved.lengths.tolist() == packed.lengths.tolist() == batch.mask.sum(1).tolist()
    lengths = torch.from_numpy(packed.lengths)
    ours = torch.nn.utils.rnn.pack_sequence(packed.data["row"].split(lengths.tolist()), enforce_sorted=False)
    theirs = torch.nn.utils.rnn.pack_padded_sequence(
        batch.data["row"], lengths, batch_first=True, enforce_sorted=False
    )
    assert torch.equal(ours.data, theirs.data)
