"""Minari datasets, written and read back (datasets G1 to G10, K1 to K10)."""

import json
import multiprocessing
import os
import subprocess
import sys
from collections import namedtuple

import gymnasium
import h5py
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from headrace import Closed, DatasetError, Episode, SpecError
from headrace.datasets.minari.public import load_minari, save_minari
from headrace.trees import register_container

Pose = register_container(namedtuple("Pose", "place heading"))


def episode(steps=3, observations=None, actions=None, *, terminated=True, truncated=False, **others):
    observations = np.arange(steps + 1, dtype=np.float32)[:, None] if observations is None else observations
    actions = np.arange(steps) % 2 if actions is None else actions
    last = np.arange(steps) == steps - 1
    return Episode(
        observations, actions, np.linspace(0, 1, steps), last & terminated, last & truncated, **others
    )


def saved(root, *episodes, **options):
    return save_minari(episodes, "demo/line-v0", root=root, **options)


def main_file(path):
    return path / "data" / "main_data.hdf5"


def metadata_of(path):
    return json.loads((path / "data" / "metadata.json").read_text(encoding="utf-8"))


def test_the_worked_example(tmp_path):
    """Section 5."""
    ep = Episode(
        observations=np.arange(4.0, dtype=np.float32)[:, None],
        actions=np.array([0, 1, 0]),
        rewards=np.array([0.0, 0.0, 1.0]),
        terminations=[False, False, True],
        truncations=[False] * 3,
        seed=7,
    )
    path = save_minari([ep], "demo/line-v0", root=tmp_path)
    assert path == tmp_path / "demo" / "line-v0"
    assert load_minari("demo/line-v0", root=tmp_path)[0] == ep
    assert load_minari("demo/line-v0", root=tmp_path).metadata["total_steps"] == 3


def test_a_dataset_lies_in_data_below_the_root(tmp_path, monkeypatch):
    """K1."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "variable"))
    path = save_minari([episode()], "ab/cd/line-v3")
    assert path == tmp_path / "variable" / "ab" / "cd" / "line-v3"
    assert sorted(each.name for each in (path / "data").iterdir()) == ["main_data.hdf5", "metadata.json"]
    for dataset in ("ab/cd/line-v3", path, path / "data", str(path)):
        assert load_minari(dataset)[0] == episode()


def test_a_broken_id_is_refused_before_anything_is_read_or_written(tmp_path):
    """K2."""

    def untouched():
        raise AssertionError("the source was read")
        yield

    with pytest.raises(ValueError, match="'line' has no version; write 'line-v0'"):
        save_minari(untouched(), "line", root=tmp_path / "root")
    assert not (tmp_path / "root").exists()


def test_the_formats_that_are_not_written_are_refused(tmp_path):
    """K3."""
    for data_format in ("arrow", "parquet", "csv"):
        with pytest.raises(ValueError, match=f"data_format: expected 'hdf5', got '{data_format}'"):
            saved(tmp_path, episode(), data_format=data_format)
    assert list(tmp_path.iterdir()) == []


def test_metadata_json(tmp_path):
    """K4."""
    path = saved(
        tmp_path, episode(3), episode(2), author={"B", "A"}, author_email="a@b.c", algorithm_name="DQN",
        description="caf\u00e9", code_permalink="https://example.org", requirements=["x>=1"], ref_min_score=1,
        ref_max_score=np.float32(2.5),
    )  # fmt: skip
    found = metadata_of(path)
    own = {key for key in found if key.startswith("headrace_")}
    spaces_and_size = ("observation_space", "action_space", "dataset_size")
    assert {key: value for key, value in found.items() if key not in own and key not in spaces_and_size} == {
        "data_format": "hdf5",
        "total_episodes": 2,
        "total_steps": 5,
        "dataset_id": "demo/line-v0",
        "minari_version": "0.5.0",
        "jpeg_encoding": False,
        "author": ["A", "B"],
        "author_email": ["a@b.c"],
        "algorithm_name": "DQN",
        "description": "caf\u00e9",
        "code_permalink": "https://example.org",
        "requirements": ["x>=1"],
        "ref_min_score": 1.0,
        "ref_max_score": 2.5,
    }
    assert isinstance(found["observation_space"], str)
    assert isinstance(found["action_space"], str)
    size = sum(file.stat().st_size for file in (path / "data").iterdir())
    assert found["dataset_size"] == pytest.approx(size / 1e6, abs=0.051)
    assert found == {**load_minari(path).metadata, "total_steps": 5}


def test_metadata_that_was_not_given_is_absent(tmp_path):
    """K4."""
    found = {key for key in metadata_of(saved(tmp_path, episode())) if not key.startswith("headrace_")}
    assert found == {
        "data_format", "total_episodes", "total_steps", "dataset_id", "minari_version", "observation_space",
        "action_space", "jpeg_encoding", "dataset_size",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("argument", "value", "error"),
    [("author", 3, TypeError), ("author", ["a", 3], TypeError), ("description", 3, TypeError),
     ("ref_min_score", "x", TypeError), ("ref_max_score", np.inf, ValueError), ("progress", 3, TypeError),
     ("compression", "zip", ValueError), ("observation_space", 3, TypeError), ("env_spec", 3, TypeError),
     ("env_spec", "Missing-v0", ValueError), ("eval_env_spec", "Missing-v0", ValueError),
     ("action_space", spaces.Sequence(spaces.Discrete(2)), ValueError)],
)  # fmt: skip
def test_wrong_arguments_are_refused_before_anything_is_written(tmp_path, argument, value, error):
    """K2, K7, K8."""
    with pytest.raises(error, match=argument):
        saved(tmp_path / "root", episode(), **{argument: value})
    assert not (tmp_path / "root").exists()


def test_images_are_kept_exactly_whatever_their_shape(tmp_path):
    """K5: images, stacks of frames, and what is no image at all."""
    random = np.random.default_rng(0)
    shapes = {"rgb": (64, 64, 3), "stack": (4, 84, 84), "grey": (40, 40), "rgba": (40, 40, 4), "ram": (128,)}
    ep = episode(
        5, {name: random.integers(0, 256, (6, *shape), dtype=np.uint8) for name, shape in shapes.items()}
    )
    path = saved(tmp_path, ep)
    assert metadata_of(path)["jpeg_encoding"] is False
    with h5py.File(main_file(path)) as file:
        for name, shape in shapes.items():
            assert file[f"episode_0/observations/{name}"].shape == (6, *shape)
    assert load_minari(path)[0] == ep


def test_the_layout_of_the_file(tmp_path):
    """K6."""
    observations = {"pose": (np.zeros((4, 2), np.float32), np.zeros(4, np.int16)), "on": np.ones(4, bool)}
    path = saved(tmp_path, episode(3, observations, seed=3), episode(3, observations))
    with h5py.File(main_file(path)) as file:
        assert sorted(file) == ["episode_0", "episode_1"]
        group = file["episode_0"]
        assert dict(group.attrs) == {"id": 0, "total_steps": 3, "seed": 3}
        assert dict(file["episode_1"].attrs) == {"id": 1, "total_steps": 3}
        assert set(group) == {"observations", "actions", "rewards", "terminations", "truncations", "infos"}
        assert isinstance(group["infos"], h5py.Group)
        assert len(group["infos"]) == 0
        assert set(group["observations"]) == {"on", "pose"}
        assert set(group["observations/pose"]) == {"_index_0", "_index_1"}
        for name, rows in (("observations/pose/_index_0", 4), ("observations/pose/_index_1", 4), ("actions", 3),
                           ("rewards", 3), ("terminations", 3), ("truncations", 3)):  # fmt: skip
            dataset = group[name]
            assert len(dataset) == rows
            assert dataset.maxshape[0] is None
            assert dataset.chunks is not None
            assert dataset.compression == "gzip"
        assert group["observations/pose/_index_0"].dtype == np.float32
        assert group["observations/pose/_index_1"].dtype == np.int16
        assert group["observations/on"].dtype == bool
        assert group["terminations"].dtype == bool
        assert group["truncations"].dtype == bool


def test_without_compression(tmp_path):
    """K6."""
    ep = episode(3, infos={"name": ["a", "b", "c"]})
    path = saved(tmp_path, ep, compression=None)
    with h5py.File(main_file(path)) as file:
        assert file["episode_0/observations"].compression is None
        assert file["episode_0/observations"].chunks is not None
        assert file["episode_0/infos/name"].compression is None
    assert load_minari(path)[0] == ep


def test_small_episodes_do_not_pay_a_large_chunk(tmp_path):
    """K6: below 100 kB."""
    path = saved(tmp_path, *[episode(4, np.zeros((5, 3), np.float32)) for _ in range(2)])
    assert main_file(path).stat().st_size < 100_000


def test_long_episodes_are_cut_into_chunks(tmp_path):
    """K6."""
    path = saved(tmp_path, episode(1000, np.zeros((1001, 84, 84), np.uint8)))
    with h5py.File(main_file(path)) as file:
        assert file["episode_0/observations"].chunks == (2**20 // 84**2, 84, 84)


def test_given_spaces_are_written_as_given_and_the_data_keeps_its_dtype(tmp_path):
    """K7."""
    space = spaces.Box(-10, 10, (1,), np.float64)
    path = saved(tmp_path, episode(), observation_space=space, action_space=spaces.Discrete(7))
    with load_minari(path) as dataset:
        assert dataset.observation_space == space
        assert dataset.action_space == spaces.Discrete(7)
        assert dataset[0].observations.dtype == np.float32


def test_data_that_does_not_fit_the_spaces_leaves_nothing(tmp_path):
    """K7, G6."""
    with pytest.raises(SpecError, match="episode 1: actions: .*got 2 at step 0"):
        saved(
            tmp_path / "root",
            episode(),
            episode(actions=np.array([2, 0, 0])),
            action_space=spaces.Discrete(2),
        )
    assert not (tmp_path / "root").exists()


def test_spaces_come_from_the_environment(tmp_path):
    """K7, K8."""
    spec = gymnasium.spec("CartPole-v1")
    env = gymnasium.make(spec)
    for given_spec in (spec, spec.to_json(), "CartPole-v1"):
        path = saved(
            tmp_path, episode(observations=np.zeros((4, 4), np.float32)), env_spec=given_spec, overwrite=True,
            eval_env_spec=given_spec,
        )  # fmt: skip
        with load_minari(path) as dataset:
            assert dataset.observation_space == env.observation_space
            assert dataset.action_space == env.action_space
            assert json.loads(dataset.metadata["env_spec"]) == json.loads(spec.to_json())
            assert json.loads(dataset.metadata["eval_env_spec"]) == json.loads(spec.to_json())
    with pytest.raises(SpecError, match=r"^episode 0: observations: .*observation_space"):
        saved(tmp_path, episode(), env_spec=spec, overwrite=True)
    path = saved(tmp_path, episode(), env_spec=spec, overwrite=True, observation_space=spaces.Box(0, 5, (1,)))
    assert load_minari(path).observation_space == spaces.Box(0, 5, (1,))


def test_spaces_are_inferred_where_the_environment_cannot_be_made(tmp_path):
    """K7."""
    spec = gymnasium.envs.registration.EnvSpec("Mine-v0", entry_point="no_such_module:Env")
    path = saved(tmp_path, episode(), env_spec=spec)
    assert load_minari(path).action_space == spaces.Discrete(2)
    assert json.loads(metadata_of(path)["env_spec"])["id"] == "Mine-v0"


OPTIONS = {
    "number": 3, "float": 0.1, "flag": True, "text": "caf\u00e9", "numpy": np.float32(0.1), "big": 2**64 - 1,
    "array": np.arange(6.0).reshape(2, 3), "texts": np.array(["a", "bcd"], "<U9"), "bools": np.array([True, False]),
    "deep": {"er": {"x": -1, "empty": {}}}, ".": 1, "large": np.arange(20_000.0), "nan": float("nan"),
    "no texts": np.empty((0, 2), "<U3"),
}  # fmt: skip


@pytest.mark.parametrize("seed", [None, 0, 7, -1, 2**63 - 1, 2**63, 2**64 - 1, np.uint32(5)])
@pytest.mark.parametrize("options", [None, {}, OPTIONS], ids=["none", "empty", "all"])
def test_seeds_and_options_come_back(tmp_path, seed, options):
    """K9, G4."""
    ep = episode(seed=seed, options=options)
    found = load_minari(saved(tmp_path, ep))[0]
    assert found == ep
    assert type(found.seed) is (type(None) if seed is None else int)
    assert found.options is None if options is None else list(found.options) == sorted(options)


def test_what_is_none_is_absent(tmp_path):
    """K9."""
    with h5py.File(main_file(saved(tmp_path, episode()))) as file:
        assert set(file["episode_0"].attrs) == {"id", "total_steps"}


def test_a_list_among_the_options_comes_back_as_an_array(tmp_path):
    """G4: the difference between a list and an array is not kept."""
    found = load_minari(saved(tmp_path, episode(options={"xs": [1, 2], "names": ["a", "bc"]})))[0].options
    assert found["xs"].tolist() == [1, 2]
    assert found["names"].tolist() == ["a", "bc"]


@pytest.mark.parametrize(
    ("reset", "message"),
    [
        ({"seed": 2**64}, "seed: expected an integer from"),
        ({"seed": "7"}, "seed: expected an integer, got str"),
        ({"options": {"a": {"b": None}}}, "options/a/b: expected numbers"),
        ({"options": {"a": object()}}, "options/a: "),
        ({"options": {"a": [[1], [1, 2]]}}, "options/a: expected an array, got a ragged"),
        ({"options": {"a/b": 1}}, "options: expected keys"),
        ({"options": {3: 1}}, "options: expected keys"),
        ({"options": {"a": "x\0y"}}, "options/a: .*NUL"),
        ({"options": {"a": "\ud800"}}, "options/a: .*UTF-8"),
        ({"options": {"a": b"bytes"}}, "options/a: "),
        ({"options": [1]}, "options: expected a mapping"),
        ({"options": {"a": 2**64}}, "options/a: expected an integer"),
        ({"id": 1.5}, "id: expected an integer"),
    ],
)
def test_a_seed_or_an_option_that_cannot_be_kept_is_refused(tmp_path, reset, message):
    """K9, G5."""
    with pytest.raises(SpecError, match=f"^episode 1: {message}"):
        saved(tmp_path / "root", episode(), episode(**reset))
    assert not (tmp_path / "root").exists()


def test_options_that_contain_themselves_are_refused(tmp_path):
    options = {}
    options["again"] = options
    with pytest.raises(SpecError, match="do they contain themselves"):
        saved(tmp_path, episode(options=options))


def test_infos_keep_their_rows_and_extras_lie_below_them(tmp_path):
    """K10."""
    ep = episode(
        3,
        infos={
            "all": np.arange(4),
            "steps": np.arange(3.0),
            "deep": {"er": np.ones((4, 2))},
            "name": ["a", "", "ccc"],
        },
        extras={"logp": np.zeros(3), "state": {"h": np.zeros((4, 5), np.float32)}},
    )
    path = saved(tmp_path, ep)
    with h5py.File(main_file(path)) as file:
        assert set(file["episode_0/infos"]) == {"all", "steps", "deep", "name", "extras"}
        assert set(file["episode_0/infos/extras"]) == {"logp", "state"}
        assert len(file["episode_0/infos/all"]) == 4
        assert len(file["episode_0/infos/steps"]) == 3
    assert load_minari(path)[0] == ep


def test_an_info_of_the_name_extras_is_refused(tmp_path):
    """K10: it would come back as extras."""
    with pytest.raises(SpecError, match="^episode 0: infos/extras"):
        saved(tmp_path, episode(infos={"extras": np.zeros(3)}))


def test_everything_comes_back_bit_for_bit(tmp_path):
    """G4."""
    special = np.array([np.nan, np.inf, -np.inf, -0.0])
    ep = episode(
        3,
        {
            "f8": special, "f4": special.astype(np.float32), "f2": special.astype(np.float16),
            "i8": np.array([2**53 + 1, -(2**63), 2**63 - 1, 0]), "u8": np.array([2**64 - 1, 0, 1, 2], np.uint64),
            "b": np.array([True, False, True, True]), "big endian": special.astype(">f8"),
            "none": np.zeros((4, 0), np.float32), "pose": Pose(np.zeros((4, 2)), np.zeros(4, np.int8)),
            "tuple": (np.arange(4), (np.arange(4),)), "text": np.array(["a", "\u4e2d", "", "b\0c"], "<U9"),
        },
        {"a": (np.zeros((3, 2), bool), np.arange(3, dtype=np.int32))},
        infos={"c": np.array([1 + 2j, np.nan, 0]), "bytes": np.array([b"\xff\x00x", b"", b"y"]), "empty": {},
               "pair": (np.zeros(3), np.zeros(4)), "nothing": None, "_index_0": np.zeros(3)},
        seed=1, id="first",
    )  # fmt: skip
    path = saved(tmp_path, ep)
    with load_minari(path) as dataset:
        found = dataset[0]
    assert found == ep
    assert np.signbit(found.observations["f8"][3])
    assert found.observations["f8"].tobytes() == ep.observations["f8"].tobytes()
    assert type(found.observations["pose"]) is Pose


leaf = npst.arrays(
    st.sampled_from([np.dtype(name) for name in ("?", "i1", "u1", "<i8", "<u8", "<f4", "<f8", "<f2", "<U3")]),
    st.tuples(st.just(4), st.integers(0, 3)).map(lambda shape: shape[: 1 + (shape[1] > 0)]),
).filter(lambda array: array.dtype.kind != "U" or (array.ndim == 1 and is_text(array)))


def is_text(array):
    return not any("\ud800" <= letter <= "\udfff" for text in array.tolist() for letter in text)


keys = st.text(
    st.characters(exclude_categories=("Cs",), exclude_characters="/\0"), min_size=1, max_size=4
).filter(lambda key: key != ".")
trees = st.recursive(
    leaf, lambda children: st.dictionaries(keys, children, min_size=1, max_size=3) | st.tuples(children, children),
    max_leaves=4,
)  # fmt: skip


@settings(max_examples=40)
@given(
    observations=trees,
    infos=st.dictionaries(keys.filter(lambda key: key != "extras"), trees, max_size=2),
    data=st.data(),
)
def test_any_tree_comes_back(tmp_path_factory, observations, infos, data):
    """G4."""
    seed = data.draw(st.none() | st.integers(0, 2**64 - 1))
    ep = episode(3, observations, infos=infos, seed=seed)
    path = save_minari([ep], "any-v0", root=tmp_path_factory.mktemp("any"))
    assert load_minari(path)[0] == ep


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"a": {".": np.zeros(4)}}, "observations/a/.: HDF5 has no place"),
        ({"a": None, "b": np.zeros(4)}, "observations/a: .*None"),
        ({"a": np.array(["\ud800"] * 4)}, "episode 0: observations/a: .*UTF-8"),
        ({"a\0b": np.zeros(4)}, "NUL"),
        ({"a": np.zeros(4, complex)}, "observations/a: .*no space"),
    ],
)
def test_what_a_dataset_cannot_hold_is_refused_by_its_path(tmp_path, tree, message):
    """G5."""
    with pytest.raises(SpecError, match=message):
        saved(tmp_path / "root", episode(3, tree))
    assert not (tmp_path / "root").exists()


def test_an_episode_of_another_structure_is_refused_and_the_root_is_as_it_was(tmp_path):
    """G5, G6; section 5."""
    (tmp_path / "demo").mkdir()
    with pytest.raises(SpecError, match=r"^episode 1: observations: expected float32\[1\], got float32\[2\]"):
        saved(tmp_path, episode(), episode(observations=np.zeros((4, 2), np.float32)))
    assert [path.name for path in tmp_path.rglob("*")] == ["demo"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("overwrite", [False, True])
def test_an_error_or_ctrl_c_leaves_everything_as_it_was(tmp_path, error, overwrite):
    """G6."""
    if overwrite:
        saved(tmp_path, episode())
    before = {path: path.read_bytes() if path.is_file() else None for path in tmp_path.rglob("*")}

    def source():
        yield episode(2)
        raise error

    with pytest.raises(error):
        save_minari(source(), "demo/line-v0", root=tmp_path, overwrite=overwrite)
    assert before == {path: path.read_bytes() if path.is_file() else None for path in tmp_path.rglob("*")}


def test_an_existing_dataset_is_not_replaced_unless_told(tmp_path):
    """G6."""
    path = saved(tmp_path, episode())
    with pytest.raises(FileExistsError):
        saved(tmp_path, episode(5))
    assert len(load_minari(path)[0]) == 3
    saved(tmp_path, episode(5), overwrite=True)
    assert len(load_minari(path)[0]) == 5


def test_a_namespace_is_never_replaced(tmp_path):
    """G6: the datasets in it would be gone."""
    save_minari([episode()], "ab-v0/line-v0", root=tmp_path)
    for overwrite in (False, True):
        with pytest.raises(FileExistsError, match="no Minari dataset"):
            save_minari([episode()], "ab-v0", root=tmp_path, overwrite=overwrite)
    assert load_minari("ab-v0/line-v0", root=tmp_path)[0] == episode()


def test_no_episodes_at_all_is_a_value_error(tmp_path):
    """G7."""
    with pytest.raises(ValueError, match="at least one episode"):
        save_minari([], "line-v0", root=tmp_path / "root")
    assert not (tmp_path / "root").exists()


@pytest.mark.parametrize(
    ("terminated", "truncated"), [(True, False), (False, True), (True, True), (False, False)]
)
def test_ends_are_kept_apart_and_an_unfinished_episode_is_truncated(tmp_path, terminated, truncated):
    """G8."""
    ep = episode(terminated=terminated, truncated=truncated)
    found = load_minari(saved(tmp_path, ep))[0]
    assert found.terminated == terminated
    assert found.truncated == (truncated or not terminated)
    assert not ep.truncated or truncated


@pytest.mark.parametrize("has_length", [True, False])
def test_progress(tmp_path, has_length):
    """G9."""
    episodes = [episode(seed=number) for number in range(3)]
    seen = []
    source = episodes if has_length else iter(episodes)
    save_minari(source, "line-v0", root=tmp_path, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(done, 3 if has_length else None) for done in (1, 2, 3)]


def test_an_exception_from_progress_stops_the_export(tmp_path):
    """G9."""

    def stop(done, total):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        saved(tmp_path / "root", episode(), progress=stop)
    assert not (tmp_path / "root").exists()


def test_something_else_in_the_source_is_a_type_error(tmp_path):
    """G1."""
    with pytest.raises(TypeError, match="position 1"):
        saved(tmp_path / "root", episode(), "no episode")
    assert not (tmp_path / "root").exists()


def test_a_dataset_can_be_the_source(tmp_path):
    """G1."""
    with load_minari(saved(tmp_path, episode(2, seed=1), episode(3, seed=2))) as dataset:
        again = save_minari(dataset, "again-v0", root=tmp_path)
        assert list(load_minari(again)) == list(dataset)


def test_episodes_are_read_one_at_a_time(tmp_path):
    """G1."""
    alive = []

    def source():
        for number in range(4):
            assert len(alive) == number  # The one before is in the file before the next is asked for.
            yield episode(seed=number)

    save_minari(source(), "line-v0", root=tmp_path, progress=lambda done, total: alive.append(done))
    assert len(alive) == 4


def test_a_dataset_is_a_sequence(tmp_path):
    """G3."""
    episodes = [episode(steps, seed=steps) for steps in (1, 2, 3)]
    with load_minari(saved(tmp_path, *episodes)) as dataset:
        assert len(dataset) == 3
        assert dataset.total_steps == 6
        assert dataset[-1] == episodes[2]
        assert dataset[1:] == episodes[1:]
        assert list(dataset) == list(dataset) == episodes
        with pytest.raises(IndexError):
            dataset[3]
    with pytest.raises(Closed):
        dataset[0]


def test_what_is_read_is_the_callers(tmp_path):
    with load_minari(saved(tmp_path, episode())) as dataset:
        dataset[0].observations[:] = 9
        assert dataset[0] == episode()


def test_one_episode_is_read_without_the_others(tmp_path):
    """X4, G3: damage to the others is not noticed, neither on opening nor on reading."""
    path = saved(tmp_path, *[episode(200, np.random.default_rng(n).normal(size=(201, 8))) for n in range(3)])
    raw = bytearray(main_file(path).read_bytes())
    with h5py.File(main_file(path)) as file:
        chunk = file["episode_1/observations"].id.get_chunk_info(0)
    raw[chunk.byte_offset : chunk.byte_offset + chunk.size] = bytes(chunk.size)
    main_file(path).write_bytes(bytes(raw))
    with load_minari(path) as dataset:
        assert len(dataset[0]) == len(dataset[2]) == 200
        with pytest.raises(DatasetError, match=r"main_data\.hdf5: episode_1: observations"):
            dataset[1]


def read_all(path, results):
    with load_minari(path) as dataset:
        results.put([int(ep.seed) for ep in dataset])


def test_two_processes_read_one_dataset_at_once(tmp_path):
    """X5: each reads all of it while the other, and this one, have it open."""
    path = saved(tmp_path, *[episode(seed=number) for number in range(5)])
    context = multiprocessing.get_context("spawn")
    with load_minari(path) as dataset:
        results = context.Queue()
        readers = [context.Process(target=read_all, args=(path, results)) for _ in range(2)]
        for reader in readers:
            reader.start()
        found = [results.get(timeout=50) for _ in readers]
        for reader in readers:
            reader.join()
        assert found == [[0, 1, 2, 3, 4]] * 2
        assert [ep.seed for ep in dataset] == [0, 1, 2, 3, 4]
    results.close()
    results.join_thread()


def test_a_dataset_that_was_replaced_is_not_mixed_up(tmp_path):
    """G11: never a wrong answer."""
    path = saved(tmp_path, episode())
    dataset = load_minari(path)
    saved(tmp_path, episode(5), overwrite=True)
    with pytest.raises(DatasetError, match="replaced since"):
        dataset[0]


SCRIPT = """
import sys
missing = sys.argv[1].split(",")
for name in missing:
    sys.modules[name] = None
import headrace as hr
from headrace.datasets.minari.public import load_minari, save_minari
assert not set(sys.modules) & {"h5py", "pyarrow", "gymnasium", "minari"} - set(missing), "loaded too early"
try:
    save_minari([hr.Episode([0.0, 1.0], [1], [0.5], [True], [False])], "line-v0", root=sys.argv[2])
    print(load_minari("line-v0", root=sys.argv[2])[0])
except ImportError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("missing", "printed"),
    [
        ("minari,jax,pyarrow,PIL", "Episode(1 steps, terminated, return 0.5)"),
        ("h5py", 'pip install "headrace[minari]"'),
    ],
)
def test_only_h5py_is_needed_and_named_where_it_is_missing(tmp_path, missing, printed):
    """G10."""
    command = [sys.executable, "-c", SCRIPT, missing, str(tmp_path)]
    result = subprocess.run(command, check=False, capture_output=True, text=True, env=os.environ, timeout=50)
    assert printed in result.stdout, result.stderr


def test_no_new_kind_of_dataset_is_kept_for_each_length(tmp_path):
    """G1: memory does not grow with the number of episodes."""
    from headrace.datasets.minari.hdf5 import writing as minari_hdf5_writing

    kept = []
    original = minari_hdf5_writing.Hdf5Writer.write

    def write(self, *arguments):
        original(self, *arguments)
        kept.append(len(self._kinds))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(minari_hdf5_writing.Hdf5Writer, "write", write)
        patch.setattr(minari_hdf5_writing, "_MAX_KINDS", 8)
        save_minari((episode(steps) for steps in range(1, 20)), "line-v0", root=tmp_path)
    assert max(kept) == 8
    assert load_minari("line-v0", root=tmp_path).total_steps == sum(range(1, 20))


def test_what_was_written_is_checked_before_it_takes_its_place(tmp_path, monkeypatch):
    """G6."""
    from headrace.datasets.minari.hdf5 import writing as minari_hdf5_writing

    original = minari_hdf5_writing.Hdf5Writer._write_array

    def forget(self, group, path, array):
        if path != b"truncations":
            original(self, group, path, array)

    monkeypatch.setattr(minari_hdf5_writing.Hdf5Writer, "_write_array", forget)
    with pytest.raises(DatasetError, match="expected 1 episodes with 3 steps"):
        saved(tmp_path / "root", episode())
    assert not (tmp_path / "root").exists()


def count_calls(episodes, tmp_path):
    """How many calls of Python an export of so many episodes takes."""
    calls = 0

    def profile(frame, event, argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    source = [episode(20) for _ in range(episodes)]
    sys.setprofile(profile)
    try:
        save_minari(source, f"line-v{episodes}", root=tmp_path)
    finally:
        sys.setprofile(None)
    return calls


def test_time_grows_linearly(tmp_path):
    """X1: no episode costs more calls than those before it."""
    count_calls(1, tmp_path)
    few, more, many = (count_calls(number, tmp_path) for number in (10, 60, 110))
    assert many - more == pytest.approx(more - few, rel=0.02)
