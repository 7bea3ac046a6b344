"""Minari data in HDF5 that others wrote, and damaged data (datasets G11, K11, K13).

The files are made by hand, in the layout of Minari's own writer.
"""

import io
import json
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from headrace import DatasetError, Episode
from headrace.datasets.minari.public import load_minari, save_minari
from headrace.datasets.minari.spaces import space_to_json

BOX = spaces.Box(-np.inf, np.inf, (2,))


def arrays(steps=3, **others):
    """What Minari writes of an episode."""
    last = np.arange(steps) == steps - 1
    return {
        "observations": np.arange(2.0 * (steps + 1), dtype=np.float32).reshape(-1, 2),
        "actions": np.arange(steps) % 2,
        "rewards": np.linspace(0, 1, steps),
        "terminations": last,
        "truncations": np.zeros(steps, bool),
        "infos": {},
        **others,
    }


def episode(**parts):
    return Episode(**{name: value for name, value in parts.items() if value is not None})


def fill(group, tree, filters):
    for name, value in tree.items():
        if isinstance(value, tuple):
            value = {f"_index_{index}": each for index, each in enumerate(value)}
        if isinstance(value, dict):
            fill(group.create_group(name), value, filters)
        elif isinstance(value, list) and isinstance((value or [0])[0], bytes) and value[0][:2] == b"\xff\xd8":
            rows = [np.frombuffer(row, np.uint8) for row in value]
            dtype = None if len({row.shape for row in rows}) == 1 else h5py.vlen_dtype(np.uint8)
            group.create_dataset(name, data=rows, dtype=dtype, chunks=True)
        elif value is not None:
            dtype = (
                h5py.string_dtype()
                if isinstance(value, list) and isinstance((value or [0])[0], str)
                else None
            )
            group.create_dataset(name, data=value, dtype=dtype, **filters)


def made(root, *episodes, observation_space=BOX, numbers=None, filters=None, **metadata):
    """A dataset in `root`; metadata of None is left out."""
    data = root / "made-v0" / "data"
    data.mkdir(parents=True)
    with h5py.File(data / "main_data.hdf5", "w", track_order=True) as file:
        for number, parts in zip(numbers or range(len(episodes)), episodes, strict=True):
            group = file.create_group(f"episode_{number}")
            group.attrs.update(
                {"id": number, "total_steps": len(parts["rewards"]), **parts.get("attributes", {})}
            )
            fill(group, {name: value for name, value in parts.items() if name != "attributes"}, filters or {})
    complete = {
        "total_episodes": len(episodes),
        "total_steps": sum(len(parts["rewards"]) for parts in episodes),
        "data_format": "hdf5",
        "dataset_id": "made-v0",
        "minari_version": "0.5.3",
        "dataset_size": 0.1,
        "observation_space": space_to_json(observation_space, "observation_space"),
        "action_space": space_to_json(spaces.Discrete(2), "action_space"),
        **metadata,
    }
    complete = {key: value for key, value in complete.items() if value is not None}
    (data / "metadata.json").write_text(json.dumps(complete))
    return root / "made-v0"


def test_what_minari_wrote_is_read(tmp_path):
    """K11."""
    first, second = arrays(3, attributes={"seed": 5, "options/wind/speed": 1.5}), arrays(1)
    path = made(tmp_path, first, second)
    with load_minari(path) as dataset:
        attributes = first.pop("attributes")
        assert dataset[0] == episode(**first, seed=attributes["seed"], options={"wind": {"speed": 1.5}})
        assert dataset[1] == episode(**second)
        assert dataset.total_steps == 4
        assert dataset.observation_space == BOX
        assert dataset.metadata["dataset_size"] == 0.1


def jpeg(image):
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "JPEG")
    return buffer.getvalue()


def pixels(data):
    return np.asarray(Image.open(io.BytesIO(data)))


IMAGES = np.random.default_rng(0).integers(0, 256, (4, 32, 40, 3), np.uint8)
IMAGE_SPACE = spaces.Box(0, 255, IMAGES.shape[1:], np.uint8)
FLAGS = pytest.mark.parametrize("flag", [True, False, None])


@FLAGS
@pytest.mark.parametrize("same_length", [True, False], ids=["one length", "many lengths"])
@pytest.mark.parametrize("shape", [(32, 40, 3), (32, 40), (8, 8, 3)], ids=str)
def test_jpeg_rows_are_decoded_whatever_the_flag_says(tmp_path, flag, same_length, shape):
    """K11: `jpeg_encoding` true or absent, and false beside rows that are JPEG all the same."""
    images = IMAGES[:, : shape[0], : shape[1]] if len(shape) == 3 else IMAGES[..., 0]
    rows = [jpeg(images[0])] * 4 if same_length else [jpeg(image) for image in images]
    assert len({len(row) for row in rows}) == (1 if same_length else 4)
    space = spaces.Box(0, 255, shape, np.uint8)
    path = made(tmp_path, arrays(observations=rows), observation_space=space, jpeg_encoding=flag)
    found = load_minari(path)[0].observations
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, [pixels(row) for row in rows])


@FLAGS
def test_raw_images_are_read_whatever_the_flag_says(tmp_path, flag):
    """K11: 0.5.3 wrote raw images too, and noted no flag."""
    path = made(tmp_path, arrays(observations=IMAGES), observation_space=IMAGE_SPACE, jpeg_encoding=flag)
    np.testing.assert_array_equal(load_minari(path)[0].observations, IMAGES)


def test_jpeg_within_dicts_and_tuples_and_actions(tmp_path):
    """K11."""
    rows = [jpeg(image) for image in IMAGES]
    space = spaces.Dict({"camera": IMAGE_SPACE, "pair": spaces.Tuple([IMAGE_SPACE, BOX])})
    observations = {"camera": rows, "pair": (rows, np.zeros((4, 2), np.float32))}
    action_space = space_to_json(IMAGE_SPACE, "action_space")
    path = made(
        tmp_path,
        arrays(observations=observations, actions=rows[:3]),
        observation_space=space,
        action_space=action_space,
    )
    found = load_minari(path)[0]
    expected = np.array([pixels(row) for row in rows])
    np.testing.assert_array_equal(found.observations["camera"], expected)
    np.testing.assert_array_equal(found.observations["pair"][0], expected)
    np.testing.assert_array_equal(found.actions, expected[:3])


@pytest.mark.parametrize(("flag", "is_decoded"), [(None, True), (True, False), (False, False)])
def test_infos_of_images_are_jpeg_only_where_there_was_no_flag_yet(tmp_path, flag, is_decoded):
    """K11: up to 0.5.3 Minari encoded every image; since it notes the flag, infos are raw."""
    rows = [jpeg(IMAGES[0])] * 4
    path = made(tmp_path, arrays(infos={"view": rows}), jpeg_encoding=flag)
    found = load_minari(path)[0].infos["view"]
    assert found.shape == ((4, *IMAGES.shape[1:]) if is_decoded else (4, len(rows[0])))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([jpeg(IMAGES[0])[:60] + b"\xff\xd9"] * 4, "row 0"),
        ([jpeg(IMAGES[0, :, :32])] * 4, r"row 0: expected an image \[32, 40, 3\]"),
        (np.zeros((4, 50), np.uint8), "images"),
    ],
)
def test_images_that_are_none_are_a_dataset_error(tmp_path, rows, message):
    """G11."""
    path = made(tmp_path, arrays(observations=rows), observation_space=IMAGE_SPACE)
    with pytest.raises(DatasetError, match=f"main_data.hdf5: episode_0: observations: .*{message}"):
        load_minari(path)[0]


@pytest.mark.parametrize(
    "infos",
    [
        {},
        {"a": np.arange(4)},
        {"a": np.arange(3)},
        {"a": np.arange(4), "b": {"c": np.ones((3, 2)), "d": {}}},
        None,
    ],
    ids=["empty", "T+1", "T", "nested", "absent"],
)
def test_infos_of_every_kind(tmp_path, infos):
    """K11: T or T+1 rows, nested groups, no `infos` group."""
    found = load_minari(made(tmp_path, arrays(infos=infos)))[0]
    assert found == episode(**arrays(infos=infos or {}))


def test_infos_that_are_tuples(tmp_path):
    """K6, K11."""
    infos = {"pair": (np.arange(4), {"x": np.arange(3)})}
    assert load_minari(made(tmp_path, arrays(infos=infos)))[0].infos["pair"][1]["x"].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "texts", [["a", "\u4e2d", "", "bcd"], np.array([b"a", "\u4e2d".encode(), b"", b"bcd"])]
)
def test_strings_as_bytes_are_str(tmp_path, texts):
    """K11: in observations of a Text space and in infos, of any length and of a fixed one."""
    path = made(tmp_path, arrays(observations=texts, infos={"name": texts}), observation_space=spaces.Text(3))
    found = load_minari(path)[0]
    assert found.observations.dtype.kind == found.infos["name"].dtype.kind == "U"
    assert found.observations.tolist() == found.infos["name"].tolist() == ["a", "\u4e2d", "", "bcd"]


def test_options_as_bytes_are_str(tmp_path):
    """K9, K11."""
    attributes = {
        "options/a": np.bytes_(b"x"),
        "options/b": np.array([b"x", b"yz"]),
        "options/c": "text",
        "seed": 2**64 - 1,
    }
    found = load_minari(made(tmp_path, arrays(attributes=attributes)))[0]
    assert found.options["a"] == "x"
    assert found.options["b"].tolist() == ["x", "yz"]
    assert found.options["c"] == "text"
    assert found.seed == 2**64 - 1


def without_final(steps=3, **others):
    whole = arrays(steps)
    return {**whole, "observations": whole["observations"][:-1], **others}


def test_a_missing_final_observation_is_an_error_that_names_the_episode(tmp_path):
    """K11."""
    path = made(tmp_path, arrays(), without_final())
    with load_minari(path) as dataset:
        assert dataset[0] == episode(**arrays())
        with pytest.raises(
            DatasetError, match=r"main_data.hdf5: episode_1: observations: expected 4 rows, got 3"
        ):
            dataset[1]


@pytest.mark.parametrize("flags", ["terminated", "unfinished"])
def test_a_missing_final_observation_can_drop_the_last_transition(tmp_path, flags):
    """K11: its observation becomes the final one, and the rest is flagged truncated."""
    parts = without_final(infos={"all": np.arange(4), "observations": np.arange(3)})
    if flags == "unfinished":
        parts["terminations"] = np.zeros(3, bool)
    path = made(tmp_path, arrays(), parts)
    with load_minari(path, missing_final="drop") as dataset:
        assert dataset[0] == episode(**arrays())
        found = dataset[1]
        np.testing.assert_array_equal(found.observations, parts["observations"])
        assert found.actions.tolist() == [0, 1]
        assert found.rewards.tolist() == [0, 0.5]
        assert (found.terminated, found.truncated) == (False, True)
        assert found.infos["all"].tolist() == [0, 1, 2]
        assert found.infos["observations"].tolist() == [0, 1, 2]
        assert dataset.total_steps == 5


def test_a_dataset_written_here_can_drop_the_last_transition_too(tmp_path):
    """K11: also where the metadata has the structure of the episodes."""
    whole = episode(
        **{
            **arrays(),
            "observations": {"a": np.arange(4.0), "b": np.zeros((4, 2))},
            "infos": {"all": np.arange(4)},
        },
        extras={"steps": np.arange(3), "all": np.arange(4)},
    )
    path = save_minari([whole, whole], "line-v0", root=tmp_path)
    with h5py.File(path / "data" / "main_data.hdf5", "r+") as file:
        group = file["episode_1/observations"]
        for name in ("a", "b"):
            rows = group[name][:-1]
            del group[name]
            group[name] = rows
    with load_minari(path) as dataset:
        assert dataset[0] == whole
        with pytest.raises(DatasetError, match='episode_1: observations: .*missing_final="drop"'):
            dataset[1]
    with load_minari(path, missing_final="drop") as dataset:
        assert dataset[0] == whole
        found = dataset[1]
        assert found.observations["a"].tolist() == [0, 1, 2]
        assert (found.actions.tolist(), found.terminated, found.truncated) == ([0, 1], False, True)
        assert found.infos["all"].tolist() == [0, 1, 2]
        assert {name: array.tolist() for name, array in found.extras.items()} == {
            "steps": [0, 1],
            "all": [0, 1, 2],
        }
        assert dataset.total_steps == 5


def test_one_transition_without_a_final_observation_leaves_nothing(tmp_path):
    """K11."""
    path = made(tmp_path, without_final(1))
    with load_minari(path, missing_final="drop") as dataset:
        with pytest.raises(DatasetError, match="episode_0: .*nothing is left"):
            dataset[0]


def test_missing_final_is_error_or_drop(tmp_path):
    with pytest.raises(ValueError, match="missing_final: expected 'error' or 'drop'"):
        load_minari(made(tmp_path, arrays()), missing_final="skip")


BROKEN = {
    "a flag in the middle": (arrays(terminations=np.array([True, False, True])), "terminations: .*step 0"),
    "zero steps": (arrays(0), "rewards: expected at least 1 row"),
    "short actions": (arrays(actions=np.zeros(2, int)), "actions: expected 3 rows, got 2"),
    "short rewards": (arrays(rewards=np.zeros(2)), "rewards: expected 3 rows, got 2"),
    "long rewards": (arrays(rewards=np.zeros(4)), "rewards: expected 3 rows, got 4"),
    "long observations": (arrays(observations=np.zeros((9, 2))), "observations: expected 4 rows, got 9"),
    "short infos": (arrays(infos={"a": {"b": np.zeros(2)}}), "infos/a/b: expected 4 or 3 rows, got 2"),
    "flags that are none": (arrays(truncations=np.array([0, 0, 7])), "truncations: expected booleans"),
    "one value": (arrays(rewards=np.zeros(3), actions=3.5), "actions: .*one value"),
    "no actions": (arrays(actions=None), "missing.*actions"),
    "no rows": ({**arrays(), "rewards": []}, "rewards"),
    "no observations": (arrays(observations=None), "missing.*observations"),
    "a group for an array": (
        arrays(observations={"a": np.zeros((4, 2))}),
        "observations: expected one array",
    ),
    "no numbers": (arrays(actions=np.zeros(3, np.dtype([("a", "i4")]))), "actions: expected numbers"),
    "contradicting options": (arrays(attributes={"options/a": 1, "options/a/b": 2}), "options/a/b"),
}


@pytest.mark.parametrize(("parts", "message"), BROKEN.values(), ids=BROKEN)
def test_a_broken_episode_is_a_dataset_error_with_file_episode_and_field(tmp_path, parts, message):
    """K11, G11; the others can be read."""
    path = made(tmp_path, arrays(), parts)
    with load_minari(path) as dataset:
        assert dataset[0] == episode(**arrays())
        with pytest.raises(DatasetError, match=f"made-v0/data/main_data.hdf5: episode_1: .*{message}"):
            dataset[1]


def test_a_missing_column_is_named(tmp_path):
    """G11."""
    path = made(tmp_path, arrays(), arrays())
    with h5py.File(path / "data/main_data.hdf5", "a") as file:
        del file["episode_1/rewards"]
    with load_minari(path) as dataset:
        assert dataset[0] == episode(**arrays())
        with pytest.raises(DatasetError, match="episode_1: .*rewards"):
            dataset[1]


def test_missing_parts_of_spaces_are_named(tmp_path):
    """G11."""
    space = spaces.Dict({"a": spaces.Tuple([BOX, BOX]), "b": BOX})
    row = np.zeros((4, 2), np.float32)
    cases = {
        "observations/b: missing": {"a": (row, row)},
        "observations/a/1: missing": {"a": (row,), "b": row},
        "observations: expected the parts of Dict": row,
    }
    for number, (message, observations) in enumerate(cases.items()):
        path = made(tmp_path / str(number), arrays(observations=observations), observation_space=space)
        with pytest.raises(DatasetError, match=f"episode_0: {message}"):
            load_minari(path)[0]


@pytest.mark.parametrize("version", ["0.6.0", "1.0", None, 3])
def test_an_unknown_version_is_a_warning(tmp_path, version):
    """K11."""
    path = made(tmp_path, arrays(), minari_version=version)
    with pytest.warns(UserWarning, match="minari_version") as record:
        dataset = load_minari(path)
    assert record[0].filename == __file__
    assert dataset[0] == episode(**arrays())


@pytest.mark.parametrize("version", ["0.5.0", "0.5.4", "0.5.12", "0.4.3"])
def test_known_versions_are_none(tmp_path, version):
    """K11."""
    assert len(load_minari(made(tmp_path, arrays(), minari_version=version))) == 1


def test_the_id_in_the_metadata_may_differ_from_the_path(tmp_path):
    """K11."""
    path = made(tmp_path, arrays(), dataset_id="another/name-v7")
    assert load_minari(path)[0] == load_minari("made-v0", root=tmp_path)[0] == episode(**arrays())


def test_episodes_are_in_the_order_of_their_numbers(tmp_path):
    """K11: with gaps, and 10 after 9."""
    path = made(tmp_path, *[arrays(steps) for steps in (1, 2, 3, 4)], numbers=[11, 9, 2, 10])
    assert [len(ep) for ep in load_minari(path)] == [3, 2, 4, 1]


@pytest.mark.parametrize(
    "filters",
    [{"compression": "gzip"}, {"compression": "lzf"}, {"shuffle": True, "compression": "gzip", "fletcher32": True},
     {"scaleoffset": None}],
    ids=["gzip", "lzf", "all", "none"],
)  # fmt: skip
def test_filters(tmp_path, filters):
    """K11."""
    assert load_minari(made(tmp_path, arrays(), filters={"chunks": True, **filters}))[0] == episode(
        **arrays()
    )


def test_steps_are_counted_and_a_difference_is_a_warning(tmp_path):
    """K13."""
    path = made(tmp_path, arrays(3), arrays(2), total_steps=7)
    with pytest.warns(UserWarning, match="total_steps is 7, and the episodes have 5") as record:
        dataset = load_minari(path)
    assert record[0].filename == __file__
    assert dataset.total_steps == dataset.metadata["total_steps"] == 5
    assert dataset.metadata["total_episodes"] == 2


def test_spaces_that_are_not_noted_come_from_the_environment(tmp_path):
    """K11: as Minari itself does."""
    import gymnasium

    spec = gymnasium.spec("CartPole-v1").to_json()
    parts = arrays(observations=np.zeros((4, 4), np.float32))
    path = made(tmp_path / "1", parts, env_spec=spec, observation_space=spaces.Discrete(2), action_space=None)
    assert load_minari(path).action_space == spaces.Discrete(2)
    tree = {"a": (np.zeros(4), np.zeros(4)), "b": np.zeros(4)}
    path = made(tmp_path / "2", arrays(observations=tree), action_space=None)
    metadata = json.loads((path / "data/metadata.json").read_text())
    del metadata["observation_space"]
    (path / "data/metadata.json").write_text(json.dumps(metadata))
    dataset = load_minari(path)
    assert dataset.observation_space is None
    assert dataset[0] == episode(**arrays(observations=tree))


def test_rewards_with_an_axis_of_one(tmp_path):
    """Minari takes them so, and writes them so into HDF5."""
    whole = arrays()
    parts = {name: whole[name][:, None] for name in ("rewards", "terminations", "truncations")}
    assert load_minari(made(tmp_path, arrays(**parts)))[0] == episode(**whole)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("metadata.json", b"{", "metadata.json: "),
        ("metadata.json", b"\xff\xfe", "metadata.json: "),
        ("metadata.json", b"[]", "JSON object"),
        ("metadata.json", None, "metadata.json: there is no such file"),
        ("main_data.hdf5", None, "main_data.hdf5: there is no such file"),
        ("main_data.hdf5", b"", "main_data.hdf5: "),
        ("main_data.hdf5", b"no HDF5 " * 99, "main_data.hdf5: "),
        ("metadata.json", b'{"data_format": "zarr"}', "data_format: expected one of hdf5"),
        ("metadata.json", b'{"observation_space": "{}"}', "metadata.json: observation_space"),
        ("metadata.json", b'{"headrace_structure": {}}', "metadata.json: headrace_structure"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*minari_version")
def test_a_file_that_is_missing_or_of_another_kind(tmp_path, name, content, message):
    """G11."""
    file = made(tmp_path, arrays()) / "data" / name
    file.unlink() if content is None else file.write_bytes(content)
    with pytest.raises(DatasetError, match=message):
        load_minari(file.parent.parent)


def test_a_structure_that_has_no_layout_is_a_dataset_error(tmp_path):
    """G11."""
    path = save_minari([Episode({"a": [0.0, 1.0]}, [0], [1.0], [True], [False])], "own-v0", root=tmp_path)
    file = path / "data" / "metadata.json"
    file.write_text(file.read_text().replace('"children": {"a"', '"children": {"."'))
    with pytest.raises(DatasetError, match=r"metadata.json: observations/\."):
        load_minari(path)


def test_no_such_dataset(tmp_path):
    """G11."""
    made(tmp_path, arrays())
    with pytest.raises(FileNotFoundError, match="made-v1; similar ids there: made-v0"):
        load_minari("made-v1", root=tmp_path)


class Own(NamedTuple):
    path: Path
    file: Path
    content: bytes
    episodes: list[Episode]

    def __repr__(self):
        return "own"  # Hypothesis shows it.


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A dataset that was written here, the bytes of its file, and its episodes."""
    random = np.random.default_rng(0)
    episodes = [
        Episode(
            {"v": random.normal(size=(steps + 1, 3)), "i": random.integers(0, 255, (steps + 1, 4, 4), np.uint8)},
            np.arange(steps) % 3, random.normal(size=steps), np.arange(steps) == steps - 1, np.zeros(steps, bool),
            infos={"s": np.array(["ab", "cde"] * steps)[:steps], "n": {"x": np.arange(steps)}},
            seed=steps, options={"a": 1.5, "b": "x", "c": np.array(["y", "zz"])},
        )
        for steps in (4, 5)
    ]  # fmt: skip
    path = save_minari(episodes, "own-v0", root=tmp_path_factory.mktemp("own"))
    file = path / "data" / "main_data.hdf5"
    return Own(path, file, file.read_bytes(), episodes)


@settings(max_examples=60)
@given(place=st.floats(0, 1, exclude_max=True), cut=st.booleans(), noise=st.binary(min_size=1, max_size=4))
@pytest.mark.filterwarnings("ignore:.*total_steps")
def test_damage_is_an_error_or_changes_nothing(own, place, cut, noise):
    """G11: never a bare error of a library, never a wrong answer."""
    path, file, content, episodes = own
    start = int(place * len(content))
    file.write_bytes(
        content[:start] if cut else (content[:start] + noise + content[start + len(noise) :])[: len(content)]
    )
    try:
        found = list(load_minari(path))
    except DatasetError as error:
        assert "own-v0/data/main_data.hdf5" in str(error)
    else:
        assert found == episodes
    finally:
        file.write_bytes(content)


def test_a_column_that_was_written_here_and_is_gone_is_named(own):
    """G11."""
    path, file, content, _ = own
    with h5py.File(file, "a") as opened:
        del opened["episode_1/infos/n/x"]
        opened["episode_0/observations/v"].resize((4, 3))
    try:
        with pytest.raises(DatasetError, match="episode_1: infos/n/x"):
            load_minari(path)[1]
        with pytest.raises(DatasetError, match="episode_0: .*observations/v: expected 5 rows, got 4"):
            load_minari(path)[0]
    finally:
        file.write_bytes(content)
