"""Minari data in arrow and parquet (datasets K11, K12).

The files are made by hand, in the layout of Minari's own writer.
"""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from gymnasium import spaces

from headrace import DatasetError, Episode
from headrace.datasets.minari.public import load_minari
from headrace.datasets.minari.spaces import space_to_json

BOX = spaces.Box(-np.inf, np.inf, (2,))
FORMATS = pytest.mark.parametrize("form", ["arrow", "parquet"])


def lists(array, *, note=None, name="x"):
    """Rows as lists of one length, and the field with a note of their shape."""
    array = np.asarray(array)
    flat = pa.array(array.reshape(-1))
    values = pa.FixedSizeListArray.from_arrays(flat, array[0].size)
    return values, pa.field(name, values.type, metadata=None if note is None else {"shape": note})


def struct(**columns):
    arrays, fields = [], []
    for name, column in columns.items():
        values, field = column if isinstance(column, tuple) else (column, pa.field(name, column.type))
        arrays.append(values)
        fields.append(field.with_name(name))
    return pa.StructArray.from_arrays(arrays, fields=fields)


def columns(steps=3, *, padded=True, flagged=True, **others):
    rows = steps + padded
    ends = np.zeros(rows, bool)
    ends[steps - 1] = flagged
    return {
        "observations": lists(np.arange(2.0 * rows, dtype=np.float32).reshape(-1, 2))[0],
        "actions": pa.array(np.append(np.arange(steps) % 2 + 5, [0] * padded)),
        "rewards": pa.array(np.append(np.arange(steps) + 0.5, [0.0] * padded)),
        "terminations": pa.array(ends),
        "truncations": pa.array(np.zeros(rows, bool)),
        **others,
    }


def made(root, form, *episodes, numbers=None, observation_space=BOX, noted=None, batch=None, **metadata):
    """A dataset in `root`; `noted` is the metadata of each episode."""
    data = root / "made-v0" / "data"
    for number, each in zip(numbers or range(len(episodes)), episodes, strict=True):
        folder = data / str(number)
        folder.mkdir(parents=True)
        table = pa.table({name: column for name, column in each.items() if column is not None})
        if form == "parquet":
            pq.write_table(table, folder / "part-0.parquet", row_group_size=batch)
        else:
            with pa.ipc.new_file(folder / "part-0.arrow", table.schema) as writer:
                writer.write_table(table, max_chunksize=batch)
        (folder / "metadata.json").write_text(json.dumps({"id": number, **(noted or {})}))
    complete = {
        "total_episodes": len(episodes),
        "total_steps": sum(len(each["rewards"]) - 1 for each in episodes),
        "data_format": form,
        "dataset_id": "made-v0",
        "minari_version": "0.5.3",
        "observation_space": space_to_json(observation_space, "observation_space"),
        "action_space": space_to_json(spaces.Discrete(2, start=5), "action_space"),
        **metadata,
    }
    (data / "metadata.json").write_text(json.dumps(complete))
    return root / "made-v0"


def expected(steps=3, **others):
    observations = np.arange(2.0 * (steps + 1), dtype=np.float32).reshape(-1, 2)
    last = np.arange(steps) == steps - 1
    parts = {"terminations": last, "truncations": np.zeros(steps, bool), **others}
    return Episode(observations, np.arange(steps) % 2 + 5, np.arange(steps) + 0.5, **parts)


@FORMATS
def test_episodes_are_read(tmp_path, form):
    """K11, K12: the padding row of the actions is dropped, and no more."""
    noted = {"seed": 2**63 + 1, "options": {"wind": {"speed": 1.5}, "name": "a"}, "total_steps": 3}
    path = made(tmp_path, form, columns(3), columns(3), noted=noted)
    with load_minari(path) as dataset:
        reset = {"seed": 2**63 + 1, "options": noted["options"]}
        assert list(dataset) == [expected(3, **reset)] * 2
        assert dataset.total_steps == 6
        assert dataset.observation_space == BOX


@FORMATS
def test_what_was_read_is_the_callers(tmp_path, form):
    with load_minari(made(tmp_path, form, columns())) as dataset:
        found = dataset[0]
        for array in (found.observations, found.actions, found.rewards):
            array[:] = 9
        assert dataset[0] == expected()


@FORMATS
@pytest.mark.parametrize("noted", [{}, {"total_steps": 3}])
def test_the_last_real_action_is_never_dropped(tmp_path, form, noted):
    """K12: without a padding row the final observation is missing, and the last row is real."""
    path = made(tmp_path, form, columns(3, padded=False), noted=noted, total_steps=3)
    with load_minari(path) as dataset:
        with pytest.raises(DatasetError, match="data: 0: observations: expected 4 rows, got 3"):
            dataset[0]
    with load_minari(path, missing_final="drop") as dataset:
        found = dataset[0]
        assert found.actions.tolist() == [5, 6]
        assert len(found.observations) == 3
        assert (found.terminated, found.truncated) == (False, True)
        assert dataset.total_steps == 2


@FORMATS
@pytest.mark.parametrize(("padded", "total_steps", "steps"), [(True, 3, 3), (True, None, 3), (False, 3, 2)])
def test_the_padding_of_unfinished_episodes_is_told_by_their_length(
    tmp_path, form, padded, total_steps, steps
):
    """K12: no flag says where the episode ends."""
    noted = {} if total_steps is None else {"total_steps": total_steps}
    path = made(tmp_path, form, columns(3, padded=padded, flagged=False), noted=noted, total_steps=3)
    with load_minari(path, missing_final="drop") as dataset:
        assert len(dataset[0]) == dataset.total_steps == steps
        assert dataset[0].actions.tolist() == [5, 6, 5][:steps]


@FORMATS
def test_a_flag_before_the_last_real_row_is_one_in_the_middle(tmp_path, form):
    """K11, K12: the row after it is not taken for padding."""
    early = columns(3, padded=False, terminations=pa.array([False, True, False]))
    with load_minari(made(tmp_path, form, early, noted={"total_steps": 3}, total_steps=3)) as dataset:
        with pytest.raises(DatasetError, match="data: 0: "):
            dataset[0]


@FORMATS
def test_infos(tmp_path, form):
    """K11: a note of the row's shape, an empty note for scalars, nested groups, strings, no note at all."""
    rows = np.arange(16.0).reshape(4, 4)
    infos = struct(
        scalar=lists(np.arange(4), note=""),
        vector=lists(rows, note="4"),
        matrix=lists(rows, note="2,2"),
        old=lists(rows, note=bytes([2, 2])),
        old_scalar=lists(np.arange(4), note=b""),
        plain=pa.array([1.0, 2.0, 3.0, 4.0]),
        text=pa.array(["a", "", "\u4e2d", "b"]),
        raw=pa.array([b"a", b"b", b"c", b"d"]),
        flag=pa.array([True, False, True, True]),
        deep=struct(er=struct(x=lists(rows, note="4,1")), lists=pa.array([[1, 2]] * 4)),
        bare=lists(rows),
        lists=pa.array([[[1, 2, 3]]] * 4),
        nothing=pa.nulls(4),
        some=pa.array([1.0, None, 3.0, 4.0]),
    )
    found = load_minari(made(tmp_path, form, columns(infos=infos)))[0].infos
    shapes = {name: value.shape for name, value in found.items() if name != "deep"}
    assert shapes == {
        "scalar": (4,), "vector": (4, 4), "matrix": (4, 2, 2), "old": (4, 2, 2), "old_scalar": (4,), "plain": (4,),
        "text": (4,), "raw": (4,), "flag": (4,), "bare": (4, 4), "lists": (4, 1, 3), "some": (4,),
    }  # fmt: skip
    np.testing.assert_array_equal(found["matrix"], rows.reshape(4, 2, 2))
    np.testing.assert_array_equal(found["old"], rows.reshape(4, 2, 2))
    assert found["scalar"].tolist() == [0, 1, 2, 3]
    assert found["text"].tolist() == ["a", "", "\u4e2d", "b"]
    assert found["raw"].tolist() == ["a", "b", "c", "d"]
    assert found["flag"].dtype == bool
    np.testing.assert_array_equal(found["some"], [1, np.nan, 3, 4])
    np.testing.assert_array_equal(found["deep"]["er"]["x"], rows[..., None])
    assert found["deep"]["lists"].tolist() == [[1, 2]] * 4


@FORMATS
def test_a_note_of_one_digit_is_text_where_that_fits(tmp_path, form):
    """K11: "3" is the text 3, or in 0.5.0 the byte 51."""
    infos = struct(text=lists(np.zeros((4, 3)), note="3"), old=lists(np.zeros((4, 51)), note="3"))
    found = load_minari(made(tmp_path, form, columns(infos=infos)))[0].infos
    assert found["text"].shape == (4, 3)
    assert found["old"].shape == (4, 51)


@FORMATS
def test_spaces_of_every_kind(tmp_path, form):
    """K11."""
    space = spaces.Dict({
        "box": spaces.Box(0, 1, (2, 2)), "many": spaces.MultiDiscrete([2, 3]), "binary": spaces.MultiBinary((1, 2)),
        "text": spaces.Text(3), "pair": spaces.Tuple([spaces.Discrete(3), spaces.Box(0, 1, (), np.float64)]),
    })  # fmt: skip
    tree = {
        "box": np.arange(16, dtype=np.float32).reshape(4, 2, 2),
        "many": np.ones((4, 2), np.int64),
        "binary": np.ones((4, 1, 2), np.int8),
        "text": np.array(["a", "b", "", "c"]),
        "pair": (np.arange(4) % 3, np.arange(4.0)),
    }
    pair = struct(**{"0": pa.array(tree["pair"][0]), "1": lists(tree["pair"][1])[0]})
    observations = struct(
        box=lists(tree["box"]),
        many=lists(tree["many"]),
        binary=lists(tree["binary"]),
        text=pa.array(tree["text"].tolist()),
        pair=pair,
    )
    found = load_minari(made(tmp_path, form, columns(observations=observations), observation_space=space))[0]
    assert found == Episode(tree, [5, 6, 5], [0.5, 1.5, 2.5], [False, False, True], [False] * 3)


@FORMATS
def test_actions_with_null_as_padding(tmp_path, form):
    """K12: texts are padded with nothing."""
    actions = pa.array(["a", "b", "c", None])
    action_space = space_to_json(spaces.Text(3), "action_space")
    path = made(tmp_path, form, columns(actions=actions), action_space=action_space)
    assert load_minari(path)[0].actions.tolist() == ["a", "b", "c"]


@FORMATS
@pytest.mark.parametrize("flag", [True, False, None])
def test_jpeg_rows_are_decoded(tmp_path, form, flag):
    """K11."""
    import io

    from PIL import Image

    images = np.random.default_rng(0).integers(0, 256, (4, 32, 40, 3), np.uint8)
    rows = []
    for image in images:
        buffer = io.BytesIO()
        Image.fromarray(image).save(buffer, "JPEG")
        rows.append(buffer.getvalue())
    space = spaces.Dict(
        {
            "jpeg": spaces.Box(0, 255, images.shape[1:], np.uint8),
            "raw": spaces.Box(0, 255, images.shape[1:], np.uint8),
        }
    )
    observations = struct(jpeg=pa.array(rows, pa.binary()), raw=lists(images))
    path = made(
        tmp_path, form, columns(observations=observations), observation_space=space, jpeg_encoding=flag
    )
    found = load_minari(path)[0].observations
    np.testing.assert_array_equal(found["raw"], images)
    np.testing.assert_array_equal(found["jpeg"], [np.asarray(Image.open(io.BytesIO(row))) for row in rows])


@FORMATS
def test_every_batch_of_a_file_belongs_to_its_episode(tmp_path, form):
    """K11: Minari's own reader cuts episodes of 32,768 steps and more into pieces and mixes them up."""
    long, short = columns(70_000), columns(3)
    path = made(tmp_path, form, long, short, batch=2**15)
    with load_minari(path) as dataset:
        assert dataset.total_steps == 70_003
        assert dataset[0] == expected(70_000)
        assert dataset[1] == expected(3)


@FORMATS
def test_the_files_of_an_episode_are_read_in_their_order(tmp_path, form):
    """K11."""
    path = made(tmp_path, form, columns(11))
    folder = path / "data" / "0"
    whole = pa.table(columns(11))
    for row in range(12):
        part = whole.slice(row, 1)
        if form == "parquet":
            pq.write_table(part, folder / f"part-{row}.parquet")
        else:
            with pa.ipc.new_file(folder / f"part-{row}.arrow", part.schema) as writer:
                writer.write_table(part)
    assert load_minari(path)[0] == expected(11)


@FORMATS
def test_episodes_are_in_the_order_of_their_numbers(tmp_path, form):
    """K11."""
    path = made(tmp_path, form, *[columns(steps) for steps in (1, 2, 3)], numbers=[10, 9, 2])
    assert [len(ep) for ep in load_minari(path)] == [3, 2, 1]


@FORMATS
def test_steps_are_counted_and_a_difference_is_a_warning(tmp_path, form):
    """K13."""
    with pytest.warns(UserWarning, match="total_steps is 7, and the episodes have 5"):
        assert load_minari(made(tmp_path, form, columns(3), columns(2), total_steps=7)).total_steps == 5


middle = pa.array([True, False, True, False])
BROKEN = {
    "a flag in the middle": (columns(terminations=middle), "terminations: .*step 0"),
    "no actions": (columns(actions=None), "missing actions"),
    "no flags": (columns(truncations=None), "missing truncations"),
    "null rewards": (columns(rewards=pa.array([1, None, 2, 0])), "rewards: expected a value in every row"),
    "another shape": (
        columns(observations=lists(np.zeros((4, 3)))[0]),
        r"observations: expected rows of the shape \[2\]",
    ),
    "another tree": (columns(observations=struct(a=pa.array([1] * 4))), "observations: expected one array"),
    "ragged infos": (
        columns(infos=struct(a=pa.array([[1], [1, 2], [1], [1]]))),
        "infos/a: expected lists of one length",
    ),
    "another type": (
        columns(infos=struct(a=pa.array([1] * 4, pa.timestamp("s")))),
        "infos/a: expected numbers",
    ),
    "an impossible note": (
        columns(infos=struct(a=lists(np.zeros((4, 3)), note="2,2"))),
        "infos/a: expected rows of the shape",
    ),
    "no image": (columns(observations=pa.array([b"\xff\xd8\xff\xff\xd9"] * 4)), "observations: row 0"),
}


@FORMATS
@pytest.mark.parametrize(("broken", "message"), BROKEN.values(), ids=BROKEN)
def test_a_broken_episode_is_a_dataset_error(tmp_path, form, broken, message):
    """G11, K11: with file, episode and field; the others can be read."""
    path = made(tmp_path, form, columns(), broken)
    with load_minari(path) as dataset:
        assert dataset[0] == expected()
        with pytest.raises(DatasetError, match=f"made-v0/data: 1: .*{message}"):
            dataset[1]


@FORMATS
def test_missing_parts_of_spaces_are_named(tmp_path, form):
    """G11."""
    space = spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Tuple([spaces.Discrete(2)] * 2)})
    whole = {"a": pa.array([0] * 4), "b": struct(**{"0": pa.array([0] * 4)})}
    for number, (message, parts) in enumerate(
        {"observations/a: missing": {"b": whole["b"]}, "observations/b/1: missing": whole}.items()
    ):
        path = made(
            tmp_path / str(number), form, columns(observations=struct(**parts)), observation_space=space
        )
        with pytest.raises(DatasetError, match=message):
            load_minari(path)[0]
    path = made(tmp_path / "flat", form, columns(), observation_space=space)
    with pytest.raises(DatasetError, match="observations: expected the parts of Dict"):
        load_minari(path)[0]


@FORMATS
@pytest.mark.parametrize("damage", ["gone", "cut", "foreign", "metadata"])
def test_damaged_files(tmp_path, form, damage):
    """G11."""
    path = made(tmp_path, form, columns(), columns(200))
    file = path / "data" / "1" / f"part-0.{form}"
    if damage == "gone":
        file.unlink()
    elif damage == "metadata":
        (path / "data" / "1" / "metadata.json").write_text("{")
    else:
        file.write_bytes(
            file.read_bytes()[: file.stat().st_size // 2] if damage == "cut" else b"nothing " * 99
        )
    with load_minari(path) as dataset:
        assert dataset[0] == expected()
        with pytest.raises(DatasetError, match="made-v0/data: 1: "):
            dataset[1]


@FORMATS
def test_without_spaces_trees_are_read_as_they_lie(tmp_path, form):
    observations = struct(a=struct(b=lists(np.zeros((4, 2)))), c=pa.array([1, 2, 3, 4]))
    path = made(tmp_path, form, columns(observations=observations), observation_space=spaces.Discrete(2))
    file = path / "data" / "metadata.json"
    metadata = json.loads(file.read_text())
    del metadata["observation_space"]
    file.write_text(json.dumps(metadata))
    found = load_minari(path)[0].observations
    assert found["a"]["b"].shape == (4, 2)
    assert found["c"].tolist() == [1, 2, 3, 4]
