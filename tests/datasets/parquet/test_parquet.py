"""Parquet files: what stands in them, row groups, and those of other origin (datasets, section 3)."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import headrace as hr
from headrace.datasets import load_parquet, save_parquet
from headrace.datasets.parquet.rows import ParquetRows


def episode(steps, start=0.0, **more):
    end = np.arange(steps) == steps - 1
    observations = more.pop("observations", np.arange(steps + 1) + float(start))
    return hr.Episode(observations, np.arange(steps), np.full(steps, 0.5), end, end & False, **more)


def test_rows_and_columns(tmp_path):
    """Datasets Q1, Q2, with the worked example: 7 rows, 2 nulls in `rewards`."""
    pose = {"pose": (np.arange(8.0).reshape(4, 2), np.arange(4, dtype=np.uint8))}
    other = {"pose": (np.arange(6.0).reshape(3, 2), np.arange(3, dtype=np.uint8))}
    episodes = [
        episode(
            3, observations=pose, infos={"said": np.array(["a", "b", "c"])}, extras={"p": np.ones(4)}, seed=5
        ),
        episode(2, observations=other, infos={"said": np.array(["d", "e"])}, extras={"p": np.zeros(3)}),
    ]
    path = save_parquet(episodes, tmp_path / "x.parquet", metadata={"by": "me"})
    table = parquet.read_table(path)
    assert table.schema.names == [
        "episode_id", "step", "is_final", "observations/pose/0", "observations/pose/1", "actions", "rewards",
        "terminations", "truncations", "infos/said", "extras/p",
    ]  # fmt: skip
    columns = table.to_pydict()
    assert columns["episode_id"] == [0, 0, 0, 0, 1, 1, 1]
    assert columns["step"] == [0, 1, 2, 3, 0, 1, 2]
    assert columns["is_final"] == [False, False, False, True, False, False, True]
    assert columns["rewards"] == [0.5, 0.5, 0.5, None, 0.5, 0.5, None]
    assert columns["terminations"] == [False, False, True, None, False, True, None]
    assert columns["infos/said"] == ["a", "b", "c", None, "d", "e", None]
    assert columns["extras/p"] == [1, 1, 1, 1, 0, 0, 0]
    assert columns["observations/pose/0"][3] == [6.0, 7.0]
    assert table.schema.field("observations/pose/0").type == pa.list_(pa.float64(), 2)
    assert table.schema.field("observations/pose/1").type == pa.uint8()
    assert table.schema.field("episode_id").type == table.schema.field("step").type == pa.int64()
    told = json.loads(parquet.read_schema(path).metadata[b"headrace"])
    assert told["seeds"] == {"each": [5, None]}
    assert told["metadata"] == {"by": "me"}


@pytest.mark.parametrize("dtype", ["c8", "c16", "g", "G"])
def test_dtypes_that_arrow_does_not_have(tmp_path, dtype):
    """Datasets Q2."""
    if np.dtype(dtype).itemsize <= 8 and np.dtype(dtype).kind == "f":
        pytest.skip("long double is float64 here")
    with pytest.raises(hr.SpecError, match="observations: expected a dtype that Parquet can hold, got"):
        save_parquet([episode(2, observations=np.zeros(3, dtype))], tmp_path / "x.parquet")
    assert list(tmp_path.iterdir()) == []


def test_strings_that_are_no_unicode(tmp_path):
    infos = {"s": np.array(["ok", "\ud800"])}
    with pytest.raises(hr.SpecError, match="episode 0: infos/s: expected strings of Unicode"):
        save_parquet([episode(2, infos=infos)], tmp_path / "x.parquet")


def groups(path):
    footer = parquet.ParquetFile(path).metadata
    return [footer.row_group(index).num_rows for index in range(footer.num_row_groups)]


def test_row_groups_hold_whole_episodes_and_cut_long_ones(tmp_path):
    """Datasets Q3."""
    lengths = [30_000, 30_000, 10_000, 150_000, 5, 6]
    episodes = [episode(length, start=n) for n, length in enumerate(lengths)]
    path = save_parquet(episodes, tmp_path / "x.parquet")
    assert groups(path) == [60_002, 10_001, 65_536, 65_536, 150_001 - 2 * 65_536, 13]
    with load_parquet(path) as dataset:
        for index in (3, 0, 5, 1, 4, 2):
            assert dataset[index] == episodes[index]


def test_row_groups_of_large_rows_are_smaller(tmp_path):
    """Datasets X4: to read one episode of images is not to read 65,536 rows of them."""
    image = np.zeros((41, 512, 512), np.uint8)
    path = save_parquet([episode(40, observations=image)] * 3, tmp_path / "x.parquet")
    assert groups(path) == [41, 41, 41]


def test_an_episode_is_read_without_the_others_row_groups(tmp_path, monkeypatch):
    """Datasets Q3, G3: opening reads no steps, and each row group is read once by an iteration."""
    episodes = [episode(40_000), episode(40_000, start=1), episode(10), episode(11)]
    path = save_parquet(episodes, tmp_path / "x.parquet")
    read = []
    whole = parquet.ParquetFile.read_row_group
    monkeypatch.setattr(
        parquet.ParquetFile,
        "read_row_group",
        lambda self, i, *a, **k: read.append(i) or whole(self, i, *a, **k),
    )
    with load_parquet(path) as dataset:
        assert read == []
        assert dataset[1] == episodes[1]
        assert read == [1]
        read.clear()
        assert list(dataset) == episodes
        assert read == [0, 1]


@pytest.mark.parametrize("compression", ["zstd", "snappy", "gzip", "none", "lz4", "brotli"])
def test_compression(tmp_path, compression):
    path = save_parquet([episode(100)], tmp_path / "x.parquet", compression=compression)
    used = parquet.ParquetFile(path).metadata.row_group(0).column(0).compression
    assert used == {"none": "UNCOMPRESSED"}.get(compression, compression.upper())
    assert load_parquet(path)[0] == episode(100)


@pytest.mark.parametrize("compression", ["rar", 3, None, ""])
def test_a_compression_that_there_is_not(tmp_path, compression):
    with pytest.raises(ValueError, match="compression"):
        save_parquet([episode(3)], tmp_path / "x.parquet", compression=compression)
    assert list(tmp_path.iterdir()) == []


def rewritten(path, change):
    """The file after a change of its table, description kept."""
    parquet.write_table(change(parquet.read_table(path)), path)
    return path


def with_column(table, name, values):
    place = table.schema.get_field_index(name)
    return table.set_column(
        place, table.schema.field(place), pa.array(values, table.schema.field(place).type)
    )


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda table: table.drop_columns(["rewards"]), "rewards: expected double, got no such column"),
        (lambda table: table.slice(1), "expected 7 rows for 2 episodes, got 6"),
        (lambda table: with_column(table, "episode_id", [0, 0, 0, 0, 1, 1, 2]), "episode 1: episode_id"),
        (lambda table: with_column(table, "step", [0, 2, 1, 3, 0, 1, 2]), "episode 0: step"),
        (lambda table: with_column(table, "is_final", [False] * 6 + [True]), "episode 0: is_final"),
        (
            lambda table: with_column(table, "rewards", [1, None, 1, None, 1, 1, None]),
            "episode 0: rewards.*null",
        ),
        (lambda table: with_column(table, "rewards", [1, 1, 1, 1, 1, 1, None]), "episode 0: rewards.*final"),
        (
            lambda table: with_column(table, "observations", [1, 1, 1, None, 1, 1, 1]),
            "episode 0: observations.*null",
        ),
        (lambda table: table.replace_schema_metadata({"headrace": "{}"}), "expected the description"),
        (lambda table: table.replace_schema_metadata(None), "expected the description"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path, change, told):
    """Datasets G11."""
    path = rewritten(save_parquet([episode(3), episode(2)], tmp_path / "x.parquet"), change)
    with pytest.raises(hr.DatasetError, match=told) as caught:
        list(load_parquet(path))
    assert str(path) in str(caught.value)


def test_a_row_group_is_checked_where_it_is_read(tmp_path):
    """Datasets G11: of a damaged file, the whole episodes can still be read."""
    episodes = [episode(60_000, start=n) for n in range(2)]
    path = save_parquet(episodes, tmp_path / "x.parquet", compression="none")
    offset = parquet.ParquetFile(path).metadata.row_group(1).column(3).data_page_offset + 1000
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)
    with load_parquet(path) as dataset:
        assert dataset[0] == episodes[0]
        with pytest.raises(hr.DatasetError, match="row group 1"):
            dataset[1]


def test_a_file_may_be_read_by_row_numbers(tmp_path):
    path = save_parquet([episode(65_536), episode(70_000, start=3)], tmp_path / "x.parquet")
    rows = ParquetRows(path)
    whole = parquet.read_table(path)
    for start, stop in ((0, 1), (65_530, 65_540), (10, 135_500), (65_536, 65_537), (135_000, rows.num_rows)):
        assert rows.read(start, stop) == whole.slice(start, stop - start)
    rows.close()


# ---- other origin --------------------------------------------------------------------------------------------------


def foreign(**changes):
    columns = {
        "episode_index": [4, 4, 4, 9, 9],
        "is_final": [False, False, True, False, True],
        "observation": [[0.0, 1.0], [1.0, 1.0], [2.0, 1.0], [3.0, 1.0], [4.0, 1.0]],
        "action": [1, 2, None, 3, None],
        "reward": [0.5, 1.5, 0.0, 2.5, 0.0],
        "terminated": [False, True, None, False, None],
        "truncated": [0, 0, 0, 1, 0],
        "timestamp": [0, 1, 2, 3, 4],
        **changes,
    }
    return {name: values for name, values in columns.items() if values is not None}


def written(folder, **changes):
    parquet.write_table(pa.table(foreign(**changes)), folder / "x.parquet")
    return folder / "x.parquet"


def test_others_files(tmp_path):
    """Datasets Q4."""
    with load_parquet(written(tmp_path)) as dataset:
        one, two = dataset
        assert (len(dataset), dataset.total_steps, dataset.metadata) == (2, 3, {})
        assert (one.id, two.id) == (4, 9)
        np.testing.assert_array_equal(one.observations, [[0.0, 1.0], [1.0, 1.0], [2.0, 1.0]])
        assert one.actions.tolist() == [1, 2]
        assert two.rewards.tolist() == [2.5]
        assert (one.terminated, one.truncated, two.terminated, two.truncated) == (True, False, False, True)
        assert one.infos == one.extras == {}


def test_others_nested_columns_and_structs(tmp_path):
    """Datasets Q4: by names with `/`, or Arrow's own structs and lists of lists."""
    path = written(
        tmp_path,
        observation=None,
        **{
            "observations/camera": [[[n, n], [n, n]] for n in range(5)],
            "observations/deep/s": ["a", "b", "c", "d", "e"],
            "infos/raw": pa.array([b"x", b"y", None, b"z", None]),
            "extras/value": [1.0, 2.0, 3.0, 4.0, 5.0],
            "action": [{"grip": 1, "arm": [0.5]}] * 5,
            "terminated": pa.array([False, True, None, False, None]).dictionary_encode(),
        },
    )
    one, two = load_parquet(path)
    assert one.observations["camera"].shape == (3, 2, 2)
    assert two.observations["deep"]["s"].tolist() == ["d", "e"]
    assert one.actions["arm"].shape == (2, 1)
    assert one.infos["raw"].tolist() == [b"x", b"y"]
    assert two.extras["value"].tolist() == [4, 5]


@pytest.mark.parametrize(
    "missing", ["episode_index", "is_final", "observation", "action", "reward", "terminated", "truncated"]
)
def test_what_others_files_lack_is_told(tmp_path, missing):
    """Datasets Q4."""
    with pytest.raises(hr.DatasetError, match=f"there is no .*{missing}"):
        load_parquet(written(tmp_path, **{missing: None}))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"is_final": [False] * 5}, "episode 4: expected is_final in its last row"),
        ({"is_final": [False, True, True, False, True]}, "episode 4: expected is_final in its last row"),
        ({"is_final": [False, False, True, True, True]}, "episode 9"),
        ({"is_final": [False, False, None, False, True]}, "is_final.*null"),
        ({"episode_index": [4, 4, 9, 9, 4]}, "episode 4: expected its rows next to each other"),
        ({"reward": [0.5, None, 0.0, 2.5, 0.0]}, "episode 0: reward.*null"),
        ({"reward": ["a", "b", "c", "d", "e"]}, "episode 0: rewards"),
        (
            {"observation": [[0.0], [0.0, 1.0], [0.0], [0.0], [0.0]]},
            "episode 0: observation: expected lists of one",
        ),
        (
            {"observation": pa.array([0, 1, 2, 3, 4], pa.timestamp("s"))},
            "episode 0: observation: expected numbers",
        ),
        ({"terminated": [True, True, None, False, None]}, "episode 0: terminations"),
        ({"observations/more": [1, 2, 3, 4, 5]}, "observations.*is an array"),
    ],
)
def test_others_files_that_do_not_fit(tmp_path, changes, told):
    """Datasets G11."""
    with pytest.raises(hr.DatasetError, match=told) as caught:
        list(load_parquet(written(tmp_path, **changes)))
    assert "x.parquet" in str(caught.value)


def test_a_file_without_rows(tmp_path):
    parquet.write_table(pa.table(foreign()).slice(0, 0), tmp_path / "x.parquet")
    with pytest.raises(hr.DatasetError, match="0 rows"):
        load_parquet(tmp_path / "x.parquet")


def test_ours_through_other_hands_is_still_ours(tmp_path):
    """What keeps Arrow's schema keeps the description: row groups may be others."""
    episodes = [episode(3, seed=1), episode(2, observations=np.arange(3.0))]
    path = save_parquet(episodes, tmp_path / "x.parquet")
    parquet.write_table(parquet.read_table(path), path, row_group_size=2)
    assert list(load_parquet(path)) == episodes


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux's list of what is mapped")
def test_g3_a_file_may_be_larger_than_the_address_space_that_a_process_may_use(tmp_path):
    """It is never mapped: a limit on addresses does not refuse it, and what was read does not stay resident."""
    path = save_parquet([episode(3), episode(2)], tmp_path / "x.parquet")
    with load_parquet(path) as dataset:
        assert [len(each) for each in dataset] == [3, 2]
        assert str(path) not in Path("/proc/self/maps").read_text()
