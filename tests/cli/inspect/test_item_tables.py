"""Priorities, ages and samples of items, as `headrace inspect` shows them."""

import json
import sys

import numpy as np
import pytest
from click.testing import CliRunner

import headrace as hr
from headrace.cli import main
from headrace.cli.inspect.item_tables import read_tables
from headrace.persist.checkpoint.stored import StoredCheckpoint
from headrace.persist.disk.stored import StoredReplay

STEP = {"observation": np.zeros(3), "action": 0, "reward": 1.0, "terminated": False, "truncated": False}


def filled(tables, items=300, length=1, path=None):
    """A replay in which an item in each table begins at each step."""
    replay = hr.Replay(hr.Signature.like(STEP), tables, seed=0, path=path)
    with replay.writer(items=[hr.ItemRule(table.name, length) for table in tables]) as writer:
        # The last item of several rows ends with the final row.
        for t in range(items if length == 1 else items + length - 2):
            writer.append(STEP | {"reward": float(t)})
        writer.end_episode({"observation": np.ones(3)})
    return replay


def saved_tables(replay, folder):
    with StoredCheckpoint(replay.save(folder)) as stored:
        return read_tables(stored)


@pytest.mark.parametrize("length", [1, 4])
def test_all_items_are_read(tmp_path, length):
    with filled(
        [hr.Table.prioritized(99, 1.0), hr.Table.uniform(9, name="q")], items=20, length=length
    ) as replay:
        keys = next(replay.items("replay", 99)).info.keys
        replay.update_priorities("replay", keys, np.arange(20))
        before = replay.statistics()
        found = saved_tables(replay, tmp_path)
        assert replay.statistics() == before
        assert list(found) == ["replay", "q"]
        assert found["replay"].distribution == replay.table("replay").distribution()
        priorities = found["replay"].priorities
        assert priorities.statistics.rows == 20
        assert [priorities.number(name) for name in ("low", "mean", "high")] == [0, 9.5, 19]
        assert (found["q"].distribution.size, found["q"].priorities.number("high")) == (9, 1)


@pytest.mark.skipif(sys.platform != "linux", reason="stores on disk need Linux")
def test_a_store_on_disk_shows_what_its_replay_shows(tmp_path):
    tables = [
        hr.Table.uniform(9, name="empty"),
        hr.Table.prioritized(99, 1.0),
        hr.Table.uniform(9, name="u"),
        hr.Table.queue("q", 99),
        hr.Table("heap", sampler=hr.selectors.MaxHeap(), remover=hr.selectors.Fifo(), max_size=99),
    ]
    with filled(tables, items=20, length=3, path=tmp_path / "store") as replay:
        replay.reset("empty")
        for name in ("replay", "heap"):
            keys = next(replay.items(name, 99)).info.keys
            replay.update_priorities(name, keys, np.arange(20))
        replay.delete("u", next(replay.items("u", 99)).info.keys[2:4])
        for name in ("replay", "u", "heap"):
            replay.sample(name, 5)
        replay.sample("q", 3)
        expected = saved_tables(replay, tmp_path / "saved")
        assert {name: each.distribution for name, each in expected.items()} == {
            name: replay.table(name).distribution() for name in replay.table_names
        }
        weights = [replay.table(name).statistics().total_weight for name in replay.table_names]
        assert [each.has_weights for each in expected.values()] == [weight is not None for weight in weights]
    with StoredReplay(tmp_path / "store") as stored:
        found = read_tables(stored)
    assert {name: each.as_json() for name, each in found.items()} == {
        name: each.as_json() for name, each in expected.items()
    }
    assert [each.has_weights for each in found.values()] == [each.has_weights for each in expected.values()]
    assert found["empty"].distribution.size == 0
    assert found["u"].distribution.size == 7
    told = CliRunner().invoke(main, ["inspect", str(tmp_path / "store")])
    assert told.exit_code == 0, told.output
    assert "priority: low" in told.output


def test_an_empty_table_has_no_priorities(tmp_path):
    with hr.Replay(hr.Signature.like(STEP), [hr.Table.queue("q", 9)]) as replay:
        found = saved_tables(replay, tmp_path)["q"]
    assert (found.priorities.number("low"), found.as_json()["priorities"]["histogram"]) == (None, None)


@pytest.mark.parametrize(
    ("table", "priorities", "is_suspicious"),
    [
        (hr.Table.prioritized(999, 1.0, name="t"), [1e6] + [1e-3] * 299, True),
        (hr.Table.prioritized(999, 1.0, name="t"), [1.0] * 300, False),
        (hr.Table.prioritized(50, 1.0, name="t"), [1e6] + [1e-3] * 49, False),
        (hr.Table.uniform(999, name="t"), [1e6] + [1e-3] * 299, False),
        (hr.Table.queue("t", 999), [1.0] * 300, False),
    ],
    ids=["one of many", "equal", "few", "uniform", "queue"],
)
def test_weights_of_a_few_items_are_suspicious(tmp_path, table, priorities, is_suspicious):
    with filled([table]) as replay:
        keys = next(replay.items("t", 999)).info.keys
        assert len(keys) == len(priorities)
        replay.update_priorities("t", keys, priorities)
        found = saved_tables(replay, tmp_path)["t"].suspicions()
    assert len(found) == is_suspicious
    if is_suspicious:
        assert found[0].startswith(
            "table t: a few items have nearly all the weight, as if there were 1 of 300"
        )


def test_a_checkpoint_shows_its_items(tmp_path):
    with filled([hr.Table.prioritized(999, 1.0, name="t<0>")]) as replay:
        keys = next(replay.items("t<0>", 999)).info.keys
        replay.update_priorities("t<0>", keys, [1e6] + [1.0] * 299)
        for _ in range(3):
            replay.sample("t<0>", 10)
        expected = replay.table("t<0>").distribution()
        replay.save(tmp_path / "run")

    def inspect(*arguments):
        done = CliRunner().invoke(main, ["inspect", str(tmp_path / "run"), *map(str, arguments)])
        assert done.exit_code == 0, done.output
        return done.output

    told = json.loads(inspect("--json"))
    found = told["items"]["t<0>"]
    assert (found["size"], found["oldest_age"], found["rows"]) == (300, 299, 300)
    assert found["mean_times_sampled"] == expected.mean_times_sampled == 0.1
    assert found["effective_sample_size"] == expected.effective_sample_size
    assert sum(found["priorities"]["histogram"]["counts"]) == 300
    assert any("nearly all the weight" in sentence for sentence in told["suspicious"])
    output = inspect("--html", tmp_path / "x.html")
    assert "priority: low" in output
    assert "1000000.00" in output
    assert output.endswith(f"written to {tmp_path / 'x.html'}\n")
    page = (tmp_path / "x.html").read_text()
    assert "effective items" in page
    assert "t&lt;0&gt;" in page
