"""server AK3: the numbers of items of clients' writers, on disk. Kills between any two lines: kills.py."""

import os

import pytest

import headrace as hr
from headrace.persist.disk import store_files
from headrace.persist.disk.writer_counts import UNCOUNTED, WriterCounts
from headrace.replay.public import core_of
from headrace.server.serving.writers.row_writer import ServedRowWriter

SESSION = b"sixteen bytes 01"
OTHER = b"sixteen bytes 02"


def test_slots_are_found_again_and_the_oldest_is_given_away(tmp_path):
    counts = WriterCounts(tmp_path / "writers", ["t", "u"], most=2)
    first = counts.open(SESSION, 1, {"u": 3})
    counts.begin(1, first, 10)
    counts.end(1, 14)
    second = counts.open(OTHER, 1, {})
    assert counts.open(SESSION, 2, {}) == UNCOUNTED
    assert counts.open(SESSION, 1, {}) == first
    assert counts.find(SESSION, 1) == {"t": 0, "u": 7}
    counts.close(second)
    assert counts.find(OTHER, 1) is None
    counts.open(OTHER, 2, {"t": 1})

    again = WriterCounts(tmp_path / "writers", ["t", "u"], most=2)
    assert again.find(SESSION, 1) == {"t": 0, "u": 7}
    again.open(b"sixteen bytes 03", 1, {})
    assert again.find(SESSION, 1) is None, "the one that was opened first"
    assert again.find(OTHER, 2) == {"t": 1, "u": 0}


@pytest.mark.parametrize("went_in", [0, 2])
def test_a_change_under_way_follows_the_count_of_the_table(tmp_path, went_in):
    counts = WriterCounts(tmp_path / "writers", ["t"], most=9)
    slot = counts.open(SESSION, 1, {"t": 5})
    counts.begin(0, slot, 100)
    again = WriterCounts(tmp_path / "writers", ["t"], most=9)
    for _ in range(2):
        again.complete([100 + went_in])
        assert again.find(SESSION, 1) == {"t": 5 + went_in}


@pytest.mark.parametrize("array", ["_changing", "_writers"])
def test_damage_is_an_error_that_names_the_file(tmp_path, array):
    path = tmp_path / "writers"
    getattr(WriterCounts(path, ["t"], most=9), array)[0] = -1
    with pytest.raises(hr.CheckpointError, match="writers"):
        WriterCounts(path, ["t"], most=9)
    with path.open("r+b") as file:
        file.write(b"other")
    with pytest.raises(hr.CheckpointError, match="byte 0"):
        WriterCounts(path, ["t"], most=9)
    os.truncate(path, 16)
    with pytest.raises(hr.CheckpointError, match=r"expected .* bytes"):
        WriterCounts(path, ["t"], most=9)


def test_after_a_failure_of_the_machine_they_are_those_of_the_durable_point(tmp_path, monkeypatch):
    fifo = hr.selectors.Fifo()
    settings = {"capacity": 1000, "path": tmp_path / "store"}
    tables = [hr.Table("t", sampler=fifo, remover=fifo, max_size=100)]
    replay = hr.Replay(hr.Signature.like({"n": 0}), tables, **settings)
    core = core_of(replay)
    writer = ServedRowWriter(core, 1, [hr.ItemRule("t", 1)], None)
    writer.count_at(core.writer_counts.open(SESSION, 1, {}))
    for n in range(7):
        writer.append({"n": n})
        if n == 4:
            core.sync()
    assert core.writer_counts.find(SESSION, 1) == {"t": 7}
    # As if the process were killed and the machine started again.
    core._disk.abandon()
    monkeypatch.setattr(store_files, "boot_id", lambda: 7)
    with hr.Replay(hr.Signature.like({"n": 0}), tables, **settings) as again:
        assert len(again.table("t")) == 5
        assert core_of(again).writer_counts.find(SESSION, 1) == {"t": 5}
