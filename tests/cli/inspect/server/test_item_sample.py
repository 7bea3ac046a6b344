"""Random items of a server's tables, as `headrace inspect ADDRESS` reads them."""

import itertools

import numpy as np
import pytest

import headrace as hr
from headrace.cli.inspect.server.item_sample import MOST_ITEMS, MOST_ROWS, sample_items
from headrace.replay.table_view import TableView

STEP = {"observation": np.zeros(2), "reward": 0.0, "terminated": False, "note": 0j}


@pytest.fixture
def replay():
    tables = [hr.Table.prioritized(999, 1.0, name="t"), hr.Table.uniform(9, name="long")]
    tables += [hr.Table.uniform(9, name="padded"), hr.Table.uniform(9, name="empty")]
    with hr.Replay(hr.Signature.like(STEP), tables, seed=0) as replay:
        rules = [hr.ItemRule("t", 1), hr.ItemRule("long", 290, stride=290)]
        rules.append(hr.ItemRule("padded", 200, stride=200, end=hr.EndOfEpisode.PAD))
        with replay.writer(items=rules) as writer:
            for t in range(300):
                writer.append(STEP | {"observation": np.array([t, -1.0]), "reward": (-1) ** t * t / 2})
            writer.end_episode({"observation": np.zeros(2)})
        yield replay


def test_items_are_read_and_not_sampled(replay):
    before = replay.statistics()
    found = sample_items(replay, "t", 100)
    assert replay.statistics() == before
    # Each item counts once, however often it is drawn.
    assert MOST_ITEMS / 2 < found.items == found.rows == found.columns["reward"].statistics.rows < MOST_ITEMS
    assert found.priorities.statistics.rows == found.items
    assert "note" not in found.columns
    assert found.columns["observation"].number("high") <= 299
    assert sample_items(replay, "empty", 100) is None


def test_a_table_of_few_items_is_read_whole(replay):
    keys = next(replay.items("t", 999)).info.keys
    replay.delete("t", keys[3:])
    found = sample_items(replay, "t", 100)
    assert (found.items, found.rows, found.columns["reward"].number("high")) == (3, 3, 1)


def test_long_items_are_read_in_part(replay):
    found = sample_items(replay, "long", 100)
    assert (found.items, found.rows, found.columns["reward"].number("high")) == (1, MOST_ROWS, 127)


def test_padding_is_not_counted(replay):
    found = sample_items(replay, "padded", 100)
    rows = next(replay.items("padded", 9)).mask.sum()
    assert found.rows == found.columns["reward"].statistics.rows == rows < found.items * 200 == 400


@pytest.mark.parametrize(("row_bytes", "items"), [(1 << 20, 32), (1 << 30, 1)])
def test_few_large_rows_are_read(replay, row_bytes, items):
    assert items / 2 < sample_items(replay, "t", row_bytes).items <= items


def test_an_item_that_is_drawn_again_is_read_again(replay, monkeypatch):
    keys = next(replay.items("t", 999)).info.keys
    replay.delete("t", keys[1:])
    draws = []
    peek = TableView.peek

    def counted(table, **options):
        draws.append(options)
        return peek(table, **options)

    monkeypatch.setattr(TableView, "peek", counted)
    assert sample_items(replay, "t", 1 << 20).items == 1
    assert len(draws) == 32


def test_asking_ends_after_two_seconds(replay):
    assert sample_items(replay, "t", 1, clock=itertools.count(0.0, 0.5).__next__).items <= 4


def test_a_large_sample_is_judged_but_for_flags_and_a_small_one_is_not(replay):
    assert sample_items(replay, "t", 100).suspicions() == [
        "observation: 1 of 2 components have one value in all rows: 1"
    ]
    keys = next(replay.items("t", 999)).info.keys
    replay.delete("t", keys[99:])
    assert sample_items(replay, "t", 100).suspicions() == []
