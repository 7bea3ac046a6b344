"""A random item of a table, as the page shows it."""

import base64
import io
import json

import numpy as np
import pytest

import headrace as hr
from headrace.monitor import looking
from headrace.monitor.looking import look
from headrace.monitor.record import to_json

EXAMPLE = {
    "observation": {
        "camera": np.zeros((10, 12, 3), np.uint8),
        "joints": np.zeros(5, np.float32),
        "wide": np.zeros(400),
    },
    "action": np.int64(0),
    "reward": np.float32(0),
    "done": np.bool_(False),
}


def filled(length, steps=8, end=hr.EndOfEpisode.DROP, example=EXAMPLE, **values):
    replay = hr.Replay(hr.Signature.like(example), [hr.Table.queue("q", 100)])
    with replay.writer(items=[hr.ItemRule("q", length, end=end)]) as writer:
        for n in range(steps):
            step = {
                "observation": {
                    "camera": np.full((10, 12, 3), n, np.uint8),
                    "joints": np.arange(5, dtype=np.float32) + n,
                    "wide": np.full(400, float(n)),
                },
                "action": n,
                "reward": np.float32(n / 2),
                "done": n % 2 == 0,
                **values,
            }
            writer.append(step)
        writer.end_episode()
    return replay


def columns_of(item):
    return {column["name"]: column for column in item["columns"]}


def test_an_item_of_one_step():
    with filled(1, steps=1) as replay:
        before = replay.statistics()
        item = look(replay, "q", replay.statistics().store.row_bytes)
        assert replay.statistics() == before
    assert (item["rows"], item["is_cut"], item["priority"], item["times_sampled"]) == (1, False, 1.0, 0)
    assert item["origin"] == {"lane": 0, "episodes": ["0"], "first_step": 0, "last_step": 0}
    columns = columns_of(item)
    assert columns["observation/joints"]["values"] == [0, 1, 2, 3, 4]
    assert columns["reward"] == {
        "name": "reward",
        "dtype": "float32",
        "shape": [],
        "kind": "values",
        "values": [0],
    }
    assert columns["observation/wide"]["text"] == "400 values from 0 to 0, mean 0"
    assert len(columns["observation/camera"]["images"]) == 1


def test_an_item_of_several_steps():
    with filled(8) as replay:
        item = look(replay, "q", 100)
    columns = columns_of(item)
    assert columns["reward"]["lines"] == [[n / 2 for n in range(8)]]
    assert columns["done"]["lines"] == [[1, 0, 1, 0, 1, 0, 1, 0]]
    assert columns["observation/joints"]["lines"][4] == [n + 4 for n in range(8)]
    assert (columns["observation/wide"]["kind"], columns["observation/wide"]["lines"][1]) == (
        "range",
        list(range(8)),
    )
    camera = columns["observation/camera"]
    assert camera["steps"] == list(range(8))
    image = pytest.importorskip("PIL.Image")
    file = base64.b64decode(camera["images"][5].removeprefix("data:image/png;base64,"))
    assert (np.asarray(image.open(io.BytesIO(file))) == 5).all()


def test_padded_rows_are_counted():
    with filled(10, steps=4, end=hr.EndOfEpisode.PAD) as replay:
        item = look(replay, "q", 100)
    assert (item["rows"], item["padded_rows"]) == (10, 6)


def test_numbers_that_json_lacks_are_null():
    with filled(1, steps=1, reward=np.float32("nan")) as replay:
        assert columns_of(json.loads(to_json(look(replay, "q", 100))))["reward"]["values"] == [None]


@pytest.mark.parametrize("dtype", ["int8", "uint64", "float16", "bool", "complex64"])
def test_every_kind_of_column_can_be_shown(dtype):
    example = {"x": np.zeros(3, dtype)}
    with hr.Replay(hr.Signature.like(example), [hr.Table.queue("q", 9)]) as replay:
        with replay.writer(items=[hr.ItemRule("q", 1)]) as writer:
            writer.append(example)
        json.loads(to_json(look(replay, "q", 100)))


def test_one_look_reads_a_bounded_number_of_bytes(monkeypatch):
    monkeypatch.setattr(looking, "MAX_BYTES", 5000)
    with filled(8) as replay:
        item = look(replay, "q", row_bytes=1700)
        assert (item["rows"], item["is_cut"]) == (2, True)
        assert look(replay, "q", row_bytes=9000)["rows"] == 1
        with pytest.raises(hr.Unsupported, match="a row has"):
            look(replay, "q", row_bytes=looking.MAX_ROW_BYTES + 1)


def test_large_images_and_many_columns_are_cut():
    example = {"above": np.zeros((1000, 600), np.uint8), **{f"c{i:02}": 0 for i in range(80)}}
    with hr.Replay(hr.Signature.like(example), [hr.Table.queue("q", 9)]) as replay:
        with replay.writer(items=[hr.ItemRule("q", 1)]) as writer:
            writer.append(example)
        item = look(replay, "q", 100)
    assert (len(item["columns"]), item["columns_left_out"]) == (64, 17)
    image = pytest.importorskip("PIL.Image")
    file = base64.b64decode(columns_of(item)["above"]["images"][0].partition(",")[2])
    assert image.open(io.BytesIO(file)).size == (150, 250)


def test_refusals():
    with filled(1, steps=1) as replay:
        replay.reset("q")
        with pytest.raises(hr.ItemNotFound, match="no items"):
            look(replay, "q", 100)
        with pytest.raises(KeyError, match="no table 'other'"):
            look(replay, "other", 100)

        class Client:
            def table(self, name):
                return object()

        with pytest.raises(hr.Unsupported, match="cannot show an item"):
            look(Client(), "q", 100)
