"""What observers and step writers ask of a writer: ends that are not the rule's, whole episodes, keys, padding."""

import numpy as np
import pytest

import headrace as hr
from headrace.replay.public import core_of
from headrace.spec import ArraySpec, Signature
from headrace.tables.description.rules import WholeEpisodes
from headrace.tables.description.selectors import Fifo

PAD, DROP, TILE = hr.EndOfEpisode.PAD, hr.EndOfEpisode.DROP, hr.EndOfEpisode.TILE
SIGNATURE = Signature({"observation": {"n": ArraySpec((), np.int64)}, "kind": ArraySpec((), np.int32)})


def new_replay(*names: str) -> hr.Replay:
    tables = [
        hr.Table(name, sampler=Fifo(), remover=Fifo(), max_size=100, max_times_sampled=1)
        for name in names or ("t",)
    ]
    return hr.Replay(SIGNATURE, tables, seed=0)


def append(writer, *numbers: int) -> None:
    for number in numbers:
        writer.append({"observation/n": number, "kind": 1})  # by the names of columns


def take_all(replay: hr.Replay, table: str = "t") -> list[list[int]]:
    taken = []
    while len(replay.table(table)):
        batch = replay.sample(table, 1)
        rows = np.atleast_1d(batch.data["observation"]["n"][0])
        real = np.ones(len(rows), bool) if batch.mask is None else batch.mask[0]
        taken.append([int(row) if is_real else -1 for row, is_real in zip(rows, real, strict=True)])
    return taken


@pytest.mark.parametrize(
    ("rows", "end", "items"),
    [
        ([1, 2], PAD, [[1, 2, -1, -1]]),
        ([1, 2], DROP, []),
        ([1, 2], TILE, [[1, 2, -1, -1]]),
        ([1, 2, 3, 4, 5], DROP, [[1, 2, 3, 4]]),
        ([1, 2], None, [[1, 2]]),
    ],
)
def test_a_run_may_end_otherwise_than_its_rule_says(rows, end, items):
    """Trajectories O2, third row: the mode depends on the length of the run."""
    rule = hr.ItemRule("t", 4, 4, hr.EndOfEpisode.TRUNCATE)
    with new_replay() as replay, replay.writer(items=[rule]) as writer:
        append(writer, *rows)
        writer._rows.cut_open_lanes(end)
        assert take_all(replay) == items
        writer._rows.cut_open_lanes(end)  # nothing is open
        append(writer, 7)
        writer._rows.cut_open_lanes(PAD)
        assert take_all(replay) == [[7, -1, -1, -1]]


def test_a_run_that_is_dropped_makes_no_further_item():
    with new_replay() as replay, replay.writer(items=[hr.ItemRule("t", 2, 1, TILE)]) as writer:
        append(writer, 1, 2, 3)
        writer._rows.drop_open_lanes()
        assert take_all(replay) == [[1, 2], [2, 3]]
        append(writer, 4, 5)
        assert take_all(replay) == [[4, 5]]


def test_whole_episodes():
    """Trajectories E1, A14: nothing before the end, nothing of what is too long."""
    with new_replay() as replay, replay.writer(items=[WholeEpisodes("t", 3)]) as writer:
        for numbers in ([1], [2, 3, 4], [5, 6, 7, 8], [9, 10]):
            before = len(replay.table("t"))
            append(writer, *numbers)
            assert len(replay.table("t")) == before
            writer._rows.cut_open_lanes()
        append(writer, 11, 12)
        writer.end_episode({"observation": {"n": 13}})
        append(writer, 14, 15, 16)
        writer.end_episode({"observation": {"n": 17}})
        assert take_all(replay) == [[1], [2, 3, 4], [9, 10], [11, 12, 13]]


def test_keys_of_what_calls_made():
    rules = [hr.ItemRule("a", 2), hr.ItemRule("b", 1), hr.ItemRule("a", 3, 3, PAD)]
    with new_replay("a", "b") as replay, replay.writer(items=rules) as writer:
        append(writer, 0)
        writer._rows.record_items()
        assert writer._rows.take_made() == []
        append(writer, 1)
        made = writer._rows.take_made()
        assert [(rule, len(keys)) for rule, keys in made] == [(1, 1), (0, 1)]
        writer._rows.cut_open_lanes()
        made += writer._rows.take_made()
        assert [rule for rule, _ in made] == [1, 0, 2]
        keys = [key for _, made_keys in made for key in made_keys]
        found = {name: [] for name in ("a", "b")}
        for name in found:
            while len(replay.table(name)):
                found[name] += replay.sample(name, 1).info.keys.tolist()
        assert found == {"a": [keys[1], keys[2]], "b": [keys[0] - 1, keys[0]]} or found["a"] == keys[1:]


def test_keys_where_every_row_is_an_item():
    with new_replay() as replay, replay.writer(lanes=3, items=[hr.ItemRule("t", 1)]) as writer:
        writer._rows.record_items()
        for _ in range(2):
            writer.append({"observation/n": np.arange(3), "kind": np.zeros(3, np.int32)})
            keys = [key for _, made in writer._rows.take_made() for key in made]
            assert keys == replay.sample("t", 3).info.keys.tolist()


def test_invented_rows_hold_what_was_noted():
    """Trajectories M2: boundary frames in tables of trajectory observers, zeros elsewhere."""
    rules = [hr.ItemRule(name, 3, 3, PAD) for name in "ab"]
    with new_replay("a", "b") as replay:
        core_of(replay).declarations.declare_padding("a", {"kind": 2})
        with replay.writer(items=rules) as writer:
            for _ in range(4):
                append(writer, 5)
                writer._rows.cut_open_lanes()
            batch = replay.sample("a", 2)
            assert batch.data["kind"].tolist() == [[1, 2, 2]] * 2
            assert batch.data["observation"]["n"].tolist() == [[5, 0, 0]] * 2
            assert replay.sample("b", 2).data["kind"].tolist() == [[1, 0, 0]] * 2
            views = {
                "what": hr.View("kind"),
                "kind": hr.View("kind", shift=[0]),
                "n": hr.View("observation/n"),
            }
            data = replay.sample("a", 2, views=views).data
            assert data["what"].tolist() == [[1, 2, 2]] * 2
            assert data["n"].tolist() == [[5, 0, 0]] * 2
            assert data["kind"][..., 0].tolist() == [[1, 0, 0]] * 2


def test_a_view_of_a_tree_shows_what_was_noted_of_its_leaves():
    """Trajectories M2, views V16: padding noted for a leaf is in every view of the row itself that shows this leaf."""
    with new_replay() as replay:
        core_of(replay).declarations.declare_padding("t", {"observation/n": 7})
        with replay.writer(items=[hr.ItemRule("t", 4, 4, PAD)]) as writer:
            for _ in range(4):
                append(writer, 5)
                writer._rows.cut_open_lanes()
        views = {
            "observation": hr.View(),
            "tree": hr.View("observation"),
            "thinned": hr.View("observation", every=2),
            "leaf": hr.View("observation/n", every=2),
        }
        data = replay.sample("t", 2, views=views).data
        assert replay.sample("t", 2).data["observation"]["n"].tolist() == [[5, 7, 7, 7]] * 2
        assert data["observation"]["n"].tolist() == data["tree"]["n"].tolist() == [[5, 7, 7, 7]] * 2
        assert data["thinned"]["n"].tolist() == data["leaf"].tolist() == [[5, 7]] * 2


@pytest.mark.parametrize("way", ["checkpoint", "disk"])
def test_what_invented_rows_hold_survives(tmp_path, way):
    """Replay Q8, D1: the same calls give the same batches, padded ones too."""
    table = hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=9)
    signature = hr.Signature.like({"kind": np.int32(0), "frame": np.zeros(2, np.float32)})
    place = {"path": tmp_path / "store"} if way == "disk" else {}
    with hr.Replay(signature, [table], **place) as replay:
        core_of(replay).declarations.declare_padding("t", {"kind": 2, "frame": [1.5, -1.0]})
        with replay.writer(items=[hr.ItemRule("t", 3, 3, PAD)]) as writer:
            writer.append({"kind": 5, "frame": np.zeros(2, np.float32)})
            writer._rows.cut_open_lanes()
        path = None if place else replay.save(tmp_path / "saved")
    with hr.Replay(signature, [table], **place) if path is None else hr.Replay.load(path) as again:
        data = again.sample("t", 1).data
        assert data["kind"].tolist() == [[5, 2, 2]]
        assert data["frame"][0, 1:].tolist() == [[1.5, -1.0]] * 2


@pytest.mark.parametrize("way", ["checkpoint", "disk"])
def test_streams_survive(tmp_path, way):
    """Trajectories A10: items over the ends of episodes are whole after a restore, and let go of their pages."""
    table = hr.Table("t", sampler=hr.selectors.Fifo(), remover=hr.selectors.Fifo(), max_size=90)
    signature = hr.Signature.like({"n": np.int64(0)})
    place = {"path": tmp_path / "store"} if way == "disk" else {}
    rule = hr.ItemRule("t", 5, 2, hr.EndOfEpisode.CONTINUE)
    with hr.Replay(signature, [table], capacity=640, **place) as replay:
        with replay.writer(lanes=2, items=[rule]) as writer:
            for n in range(40):
                writer.append({"n": np.array([n, n + 1000])})
                if n % 7 == 6:
                    writer.end_episode({"n": np.array([n + 100, n + 1100])})
        expected = [replay.sample("t", 1).data["n"].tolist() for _ in range(2)]
        path = None if place else replay.save(tmp_path / "saved")
    with hr.Replay(signature, [table], **place) if path is None else hr.Replay.load(path) as again:
        assert [again.sample("t", 1).data["n"].tolist() for _ in range(2)] == expected
        again.reset("t")
        assert again.statistics().store.pages == 0


def test_padding_is_checked():
    with new_replay() as replay:
        with pytest.raises(KeyError, match="'t'"):
            replay.row_writer().declare_padding("x", {})
        with pytest.raises(hr.SpecError, match="else"):
            core_of(replay).declarations.declare_padding("t", {"else": 1})
        with pytest.raises(hr.SpecError, match="kind"):
            core_of(replay).declarations.declare_padding("t", {"kind": 0.5})


def test_waiting_for_what_is_pending():
    """Trajectories O10: a call waits only until as many wait as may."""
    with hr.Replay(SIGNATURE, [hr.Table.queue("q", 1)]) as replay:
        with replay.writer(items=[hr.ItemRule("q", 1)]) as writer:
            append(writer, 1, 2, 3)
            writer._rows.wait_pending(2, timeout=0)
            with pytest.raises(hr.DeadlineExceeded) as info:
                writer._rows.wait_pending(1, timeout=0)
            assert info.value.pending == 2
            assert [replay.sample("q", 1).data["observation"]["n"].tolist() for _ in range(3)] == [
                [1],
                [2],
                [3],
            ]
            writer._rows.wait_pending(0, timeout=0)
