"""LeRobot datasets, written here in the layouts of its versions 2 and 3."""

import io
import json
import logging

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import headrace as hr
from headrace.datasets import load_lerobot

LENGTHS = (3, 2)
SINGLE = {"dtype": "int64", "shape": [1], "names": None}
FEATURES = {
    "observation.state": {"dtype": "float32", "shape": [2], "names": {"motors": ["a", "b"]}},
    "action": {"dtype": "float32", "shape": [1], "names": None},
    "next.reward": {"dtype": "float32", "shape": [1], "names": None},
    "next.done": {"dtype": "bool", "shape": [1], "names": None},
    "timestamp": {"dtype": "float32", "shape": [1], "names": None},
    "frame_index": SINGLE,
    "episode_index": SINGLE,
    "index": SINGLE,
    "task_index": SINGLE,
}


def frames(episode, length, **others):
    """The columns of an episode; observations are 100 * episode + frame."""
    numbers = np.arange(length)
    state = np.stack([100.0 * episode + numbers, -numbers], axis=1)
    return {
        "observation.state": pa.array(state.tolist(), pa.list_(pa.float32())),
        "action": pa.array(0.5 * numbers, pa.float32()),
        "next.reward": pa.array(1.0 * numbers, pa.float32()),
        "next.done": pa.array(numbers == length - 1),
        "timestamp": pa.array(numbers / 10, pa.float32()),
        "frame_index": pa.array(numbers),
        "episode_index": pa.array(np.full(length, episode)),
        "index": pa.array(numbers),
        "task_index": pa.array(np.full(length, episode % 2)),
        **others,
    }


def write(folder, episodes, features=None, version="v2.1"):
    """Writes a file for each episode (version 2), or one for all of them."""
    data, meta = folder / "data" / "chunk-000", folder / "meta"
    data.mkdir(parents=True)
    meta.mkdir()
    info = {"codebase_version": version, "fps": 10, "robot_type": None, "features": features or FEATURES}
    (meta / "info.json").write_text(json.dumps(info))
    tables = [pa.table(columns) for columns in episodes]
    if version == "v3.0":
        pq.write_table(pa.concat_tables(tables), data / "file-000.parquet")
    for number, table in enumerate(tables):
        if version != "v3.0":
            pq.write_table(table, data / f"episode_{number:06d}.parquet")
    return folder


def without(name):
    return [
        {key: value for key, value in frames(number, length).items() if key != name}
        for number, length in enumerate(LENGTHS)
    ]


def states(dataset):
    return [episode.observations["state"][:, 0].tolist() for episode in dataset]


def ends(dataset):
    return [(episode.terminated, episode.truncated) for episode in dataset]


def png(value, mode="RGB"):
    file = io.BytesIO()
    Image.new(mode, (4, 2), value).save(file, "PNG")
    return {"bytes": file.getvalue(), "path": "frame_000000.png"}


@pytest.mark.parametrize("version", ["v2.1", "v3.0"])
def test_both_versions(tmp_path, version):
    folder = write(tmp_path / "x", [frames(n, length) for n, length in enumerate(LENGTHS)], version=version)
    with load_lerobot(folder) as dataset:
        assert (len(dataset), dataset.total_steps, dataset.format_name) == (2, 5, "lerobot")
        assert states(dataset) == [[0, 1, 2, 2], [100, 101, 101]]
        assert ends(dataset) == [(True, False)] * 2
        second = dataset[1]
        assert second.actions.tolist() == [[0], [0.5]]
        assert (second.rewards.tolist(), second.rewards.dtype, second.id) == ([0, 1], np.float32, 1)
        assert second.infos["task_index"].tolist() == [1, 1]
        assert set(second.infos) == {"task_index", "timestamp"}
        assert dataset.metadata["fps"] == 10


def test_episodes_in_several_files_and_row_groups(tmp_path):
    """Version 3; an episode may lie in two row groups, and each is read on demand in any order."""
    folder = write(tmp_path / "x", [])
    tables = [pa.table(frames(number, 3)) for number in range(5)]
    data = folder / "data" / "chunk-000"
    pq.write_table(pa.concat_tables(tables[:3]), data / "file-000.parquet", row_group_size=2)
    (folder / "data" / "chunk-001").mkdir()
    pq.write_table(pa.concat_tables(tables[3:]), folder / "data/chunk-001/file-000.parquet", row_group_size=4)
    with load_lerobot(folder) as dataset:
        assert [dataset[index].observations["state"][2, 0] for index in (4, 0, 3, 1, 2)] == [
            402,
            2,
            302,
            102,
            202,
        ]
        assert [each.id for each in dataset] == [0, 1, 2, 3, 4]
    with pytest.raises(hr.Closed):
        dataset[0]


def test_the_last_transitions_are_dropped(tmp_path):
    """As in Minari's data without last observations (datasets K11)."""
    episodes = [frames(0, 3), frames(1, 1), frames(2, 2)]
    dataset = load_lerobot(write(tmp_path / "x", episodes), missing_final="drop")
    assert states(dataset) == [[0, 1, 2], [200, 201]]
    assert ends(dataset) == [(False, True)] * 2
    assert [each.rewards.tolist() for each in dataset] == [[0, 1], [0]]
    assert ([each.id for each in dataset], dataset.total_steps) == ([0, 2], 3)


def test_success_tells_what_terminates(tmp_path):
    """PushT sets next.done twice at the end, also where the time is over."""
    lengths = ((0, 3, True), (1, 4, False))
    episodes = [
        frames(
            number,
            length,
            **{
                "next.success": pa.array((np.arange(length) == length - 1) & success),
                "next.done": pa.array(np.arange(length) >= length - 2),
            },
        )
        for number, length, success in lengths
    ]
    dataset = load_lerobot(write(tmp_path / "x", episodes))
    assert states(dataset) == [[0, 1, 2, 2], [100, 101, 102, 103]]
    assert ends(dataset) == [(True, False), (False, True)]
    assert dataset[0].infos["success"].tolist() == [False, False, True]


def test_without_done_every_episode_is_truncated(tmp_path):
    dataset = load_lerobot(write(tmp_path / "x", without("next.done")))
    assert states(dataset) == [[0, 1, 2], [100, 101]]
    assert ends(dataset) == [(False, True)] * 2


def test_without_rewards_they_are_0(tmp_path, caplog):
    dataset = load_lerobot(write(tmp_path / "x", without("next.reward")))
    assert dataset[0].rewards.tolist() == [0, 0, 0]
    assert dataset[0].rewards.dtype == np.float32
    assert "there is no next.reward; all rewards are 0" in caplog.text


@pytest.mark.parametrize("version", ["v2.1", "v3.0"])
def test_tasks(tmp_path, version):
    folder = write(tmp_path / "x", [frames(0, 2)], version=version)
    if version == "v3.0":
        pq.write_table(
            pa.table({"task_index": [1, 0], "__index_level_0__": ["push", "lift"]}),
            folder / "meta/tasks.parquet",
        )
    else:
        lines = [{"task_index": 0, "task": "lift"}, {"task_index": 1, "task": "push"}]
        (folder / "meta/tasks.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    assert load_lerobot(folder).metadata["tasks"] == ["lift", "push"]


def test_images_are_decoded(tmp_path):
    image = {"dtype": "image", "shape": [3, 2, 4], "names": ["channel", "height", "width"]}
    rows = pa.array([png((1, 2, 3)), png((4, 5, 6))])
    folder = write(
        tmp_path / "x",
        [frames(0, 2, **{"observation.images.top": rows})],
        {**FEATURES, "observation.images.top": image},
    )
    top = load_lerobot(folder)[0].observations["images"]["top"]
    assert (top.shape, top.dtype) == ((3, 2, 4, 3), np.uint8)
    assert top[:, 0, 0].tolist() == [[1, 2, 3], [4, 5, 6], [4, 5, 6]]


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (
            {"bytes": None, "path": "images/frame_000000.png"},
            "expected images in the Parquet file, got paths",
        ),
        ({"bytes": b"no image", "path": ""}, "row 0: expected an image in PNG or JPEG"),
        (png(700, "I;16"), "expected grey values or colours of 8 bits"),
    ],
)
def test_images_that_cannot_be_read(tmp_path, row, told):
    """Datasets G11."""
    rows = pa.array([row, row], pa.struct({"bytes": pa.binary(), "path": pa.string()}))
    dataset = load_lerobot(write(tmp_path / "x", [frames(0, 2, **{"observation.image": rows})]))
    with pytest.raises(
        hr.DatasetError, match=f"episode_000000.parquet: episode 0: observation.image: .*{told}"
    ):
        dataset[0]


def test_videos_are_not_read(tmp_path, caplog):
    """The log names them, and so does the error where there is nothing else to observe."""
    features = {**FEATURES, "observation.images.top": {"dtype": "video", "shape": [8, 8, 3], "names": None}}
    episodes = [frames(0, 2)]
    with caplog.at_level(logging.WARNING):
        dataset = load_lerobot(write(tmp_path / "x", episodes, features))
    assert "videos are not read: observation.images.top" in caplog.text
    assert set(dataset[0].observations) == {"state"}
    with pytest.raises(
        hr.DatasetError, match=r"expected columns observation .*; videos are not read: observation\.images"
    ):
        load_lerobot(write(tmp_path / "y", without("observation.state"), features))


class _Array2D(pa.ExtensionType):
    """As the package `datasets` registers its arrays of several axes."""

    def __init__(self):
        super().__init__(pa.list_(pa.list_(pa.float32())), "tests.array2d")

    def __arrow_ext_serialize__(self):
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type, serialized):
        return cls()


@pytest.mark.parametrize("is_registered", [True, False])
def test_arrays_of_several_axes(tmp_path, is_registered):
    points = pa.ExtensionArray.from_storage(
        _Array2D(), pa.array([[[1, 2, 3], [4, 5, 6]]] * 2, pa.list_(pa.list_(pa.float32())))
    )
    features = {**FEATURES, "observation.points": {"dtype": "float32", "shape": [2, 3], "names": None}}
    folder = write(tmp_path / "x", [frames(0, 2, **{"observation.points": points})], features)
    if is_registered:
        pa.register_extension_type(_Array2D())
    try:
        found = load_lerobot(folder)[0].observations["points"]
    finally:
        if is_registered:
            pa.unregister_extension_type("tests.array2d")
    assert found.shape == (3, 2, 3)
    assert found[0].tolist() == [[1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize(
    ("others", "told"),
    [
        (
            {"frame_index": pa.array([0, 2])},
            "episode_000000.parquet: episode 0: frame_index: expected 0 to 1",
        ),
        (
            {"observation.state": pa.array([[1.0], [2.0]])},
            "episode_000000.parquet: episode 0: .*cannot reshape",
        ),
        ({"next.reward": pa.array([None, 1.0])}, "episode 0: next.reward: expected a value in every row"),
        ({"action": pa.array([[1.0], [1.0, 2.0]])}, "episode 0: action: expected lists of one length"),
    ],
)
def test_damaged_frames(tmp_path, others, told):
    """Datasets G11."""
    dataset = load_lerobot(write(tmp_path / "x", [frames(0, 2, **others)]))
    with pytest.raises(hr.DatasetError, match=told):
        dataset[0]


def test_folders_of_another_kind(tmp_path):
    """Datasets G11."""
    with pytest.raises(FileNotFoundError, match=r"none/meta/info\.json"):
        load_lerobot(tmp_path / "none")
    with pytest.raises(ValueError, match="missing_final: expected 'repeat' or 'drop', got 'error'"):
        load_lerobot(tmp_path, missing_final="error")
    with pytest.raises(hr.DatasetError, match="expected frames in data/chunk-000"):
        load_lerobot(write(tmp_path / "empty", []))
    with pytest.raises(hr.DatasetError, match="episode 0: expected its rows next to each other"):
        load_lerobot(write(tmp_path / "mixed", [frames(0, 2), frames(1, 2), frames(0, 2)], version="v3.0"))
    with pytest.raises(hr.DatasetError, match="expected columns action"):
        load_lerobot(write(tmp_path / "actions", without("action")))
    folder = write(tmp_path / "info", [frames(0, 2)])
    (folder / "meta/info.json").write_text("[]")
    with pytest.raises(hr.DatasetError, match=r"info\.json: expected an object with features"):
        load_lerobot(folder)


def test_into_a_replay(tmp_path):
    """Datasets G12, with the task beside each step."""
    dataset = load_lerobot(write(tmp_path / "x", [frames(0, 3), frames(1, 2)]))
    step = {
        "observation": {"state": np.zeros(2, np.float32)},
        "action": np.zeros(1, np.float32),
        "reward": np.float32(0),
        "terminated": False,
        "truncated": False,
        "extras": {"task_index": np.int64(0)},
    }
    with hr.Replay(hr.Signature.like(step), [hr.Table.uniform(100)]) as replay:
        with hr.TransitionWriter(replay) as writer:
            for episode in dataset:
                episode.extras = {"task_index": episode.infos["task_index"]}
                writer.add_episode(episode)
        back = list(hr.datasets.episodes(replay))
    assert states(back) == states(dataset)
    assert [each.extras["task_index"].tolist() for each in back] == [[0, 0, 0], [1, 1]]
