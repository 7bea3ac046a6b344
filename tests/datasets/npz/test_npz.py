"""npz files: what stands in them, and those of other origin (datasets, section 4)."""

import json
import zipfile

import numpy as np
import pytest

import headrace as hr
from headrace.datasets import load_npz, save_npz
from headrace.datasets.npz import archive


def episode(steps, start=0.0, terminated=True, truncated=False, **more):
    end = np.arange(steps) == steps - 1
    return hr.Episode(
        np.arange(start, start + steps + 1),
        np.arange(steps),
        np.full(steps, 0.5),
        end & terminated,
        end & truncated,
        **more,
    )


def test_arrays_stand_one_behind_the_other(tmp_path):
    """Datasets Z1, with the worked example: lengths 3 and 2."""
    episodes = [
        episode(3, infos={"speed": np.zeros(3)}, seed=7),
        episode(2, 10.0, infos={"speed": np.zeros(3)}, extras={"a": {"b": np.zeros((2, 4))}}),
    ]
    episodes[0].extras = {"a": {"b": np.ones((4, 4))}}
    path = save_npz(episodes, tmp_path / "data.v1", metadata={"by": "me"})
    assert path == tmp_path / "data.v1.npz"
    with np.load(path, allow_pickle=False) as arrays:
        assert {name: arrays[name].shape for name in arrays} == {
            "observations": (7,),
            "actions": (5,),
            "rewards": (5,),
            "terminations": (5,),
            "truncations": (5,),
            "infos/speed": (6,),
            "extras/a/b": (6, 4),
            "episode_lengths": (2,),
            "headrace": (),
        }
        assert arrays["episode_lengths"].dtype == np.int64
        assert arrays["episode_lengths"].tolist() == [3, 2]
        assert arrays["observations"].tolist() == [0, 1, 2, 3, 10, 11, 12]
        assert json.loads(arrays["headrace"].item())["metadata"] == {"by": "me"}
    assert list(load_npz(tmp_path / "data.v1")) == list(load_npz(path)) == episodes


@pytest.mark.parametrize("compressed", [True, False])
def test_compressed_or_not(tmp_path, compressed):
    path = save_npz([episode(1000)], tmp_path / "x.npz", compressed=compressed)
    with zipfile.ZipFile(path) as archive:
        kinds = {entry.compress_type for entry in archive.infolist()}
    assert kinds == {zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED}
    assert load_npz(path)[0] == episode(1000)


def test_columns_larger_than_what_is_held_in_memory(tmp_path):
    """Datasets G1: rows go on in a file without a name."""
    image = np.random.default_rng(0).integers(0, 255, (5, 200, 200, 3), dtype=np.uint8)
    episodes = [hr.Episode(image + n, *np.zeros((2, 4)), *np.zeros((2, 4), bool)) for n in range(4)]
    path = save_npz(iter(episodes), tmp_path / "x.npz")
    assert list(load_npz(path)) == episodes
    assert [each.name for each in tmp_path.iterdir()] == ["x.npz"]


def rewritten(path, **changes):
    """The file with some arrays exchanged (None: left out), as others could write it."""
    with np.load(path, allow_pickle=False) as arrays:
        columns = {name: arrays[name] for name in arrays}
    columns.update(changes)
    np.savez(path, **{name: value for name, value in columns.items() if value is not None})
    return path


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"rewards": None}, "rewards is missing"),
        ({"rewards": np.zeros(6)}, r"rewards: expected float64\[5\].*got float64\[6\]"),
        ({"rewards": np.zeros(5, np.float32)}, "rewards: expected float64"),
        ({"observations": np.zeros(8)}, "observations: expected"),
        ({"episode_lengths": np.array([2, 3])}, "episode_lengths"),
        ({"episode_lengths": None}, "episode_lengths is missing"),
        ({"headrace": np.array("{}")}, "headrace: expected the description"),
        ({"headrace": np.array(["{}"])}, "headrace: expected one string"),
        ({"headrace": np.array('{"version": 9}')}, "headrace"),
        ({"terminations": np.ones(5, bool)}, "episode 0: terminations"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path, changes, told):
    """Datasets Z2, G11."""
    path = rewritten(save_npz([episode(3), episode(2)], tmp_path / "x.npz"), **changes)
    with pytest.raises(hr.DatasetError, match=told) as caught:
        list(load_npz(path))
    assert str(path) in str(caught.value)


def test_nothing_is_unpickled(tmp_path):
    """Datasets G5."""
    path = tmp_path / "x.npz"
    np.savez(path, observations=np.array([object()], object), actions=np.zeros(1))
    with pytest.raises(hr.DatasetError):
        load_npz(path)


# ---- other origin --------------------------------------------------------------------------------------------------


FOREIGN = {
    "observations": np.arange(7.0)[:, None],
    "actions": np.arange(5),
    "rewards": np.arange(5.0),
    "terminals": np.array([0, 0, 1, 0, 0], np.uint8),
    "timeouts": np.array([0, 0, 0, 0, 0], np.uint8),
    "episode_lengths": np.array([3, 2], np.int32),
}


def test_others_files_with_lengths(tmp_path):
    """Datasets Z3."""
    infos = {"infos/qpos": np.arange(5.0), "infos/deep/t": np.arange(7)}
    np.savez(tmp_path / "x.npz", **FOREIGN, **infos, something=np.zeros(3))
    one, two = dataset = load_npz(tmp_path / "x.npz")
    assert (dataset.total_steps, dataset.metadata) == (5, {})
    assert one.observations.tolist() == [[0], [1], [2], [3]]
    assert (one.terminated, one.truncated, two.terminated, two.truncated) == (True, False, False, False)
    assert two.observations.tolist() == [[4], [5], [6]]
    assert two.actions.tolist() == [3, 4]
    assert two.infos["qpos"].tolist() == [3, 4]
    assert two.infos["deep"]["t"].tolist() == [4, 5, 6]


def test_others_files_with_next_observations(tmp_path):
    """Datasets Z3: episodes end at the flags, the rest is an unfinished episode."""
    np.savez(
        tmp_path / "x.npz",
        **{"observations/pose": np.array([0, 1, 10, 11, 12, 20]), "observations/raw": np.zeros((6, 2))},
        **{
            "next_observations/pose": np.array([1, 2, 11, 12, 13, 21]),
            "next_observations/raw": np.ones((6, 2)),
        },
        actions=np.arange(6),
        rewards=np.ones(6),
        terminations=np.array([0, 1, 0, 0, 0, 0], bool),
        truncations=np.array([0, 0, 0, 0, 1, 0], bool),
    )
    found = list(load_npz(tmp_path / "x.npz"))
    assert [each.observations["pose"].tolist() for each in found] == [[0, 1, 2], [10, 11, 12, 13], [20, 21]]
    assert [each.actions.tolist() for each in found] == [[0, 1], [2, 3, 4], [5]]
    assert [(each.terminated, each.truncated) for each in found] == [
        (True, False),
        (False, True),
        (False, False),
    ]
    assert found[0].observations["raw"][:, 0].tolist() == [0, 0, 1]


def test_next_observations_that_do_not_follow_are_told(tmp_path, caplog):
    columns = {**FOREIGN, "observations": np.zeros((5, 1)), "next_observations": np.ones((5, 1))}
    del columns["episode_lengths"]
    np.savez(tmp_path / "x.npz", **columns)
    assert len(load_npz(tmp_path / "x.npz")) == 2
    assert "not the observations that follow" in caplog.text


def test_next_observations_that_follow_are_not_told(tmp_path, caplog):
    """NaN follows NaN, and the first observation of an episode follows nothing."""
    columns = {
        **FOREIGN,
        "observations": np.array([0, np.nan, 2, 10, 11])[:, None],
        "next_observations": np.array([np.nan, 2, 3, 11, 12])[:, None],
    }
    del columns["episode_lengths"]
    np.savez(tmp_path / "x.npz", **columns)
    assert len(load_npz(tmp_path / "x.npz")) == 2
    assert not caplog.text


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("rewards", "rewards"),
        ("actions", "actions"),
        ("terminals", "terminations"),
        ("timeouts", "truncations"),
        ("observations", "observations"),
    ],
)
@pytest.mark.parametrize("rows", [4, 6])
def test_without_lengths_the_array_that_differs_from_the_others_is_named(tmp_path, name, told, rows):
    """Datasets G11."""
    columns = {**FOREIGN, "observations": np.zeros((5, 1)), "next_observations": np.zeros((5, 1))}
    del columns["episode_lengths"]
    np.savez(
        tmp_path / "x.npz",
        **{**columns, name: np.resize(columns[name] * 0, (rows, *columns[name].shape[1:]))},
    )
    with pytest.raises(
        hr.DatasetError, match=f"x.npz: {told}: expected 5 rows, as most arrays have, got {rows}"
    ):
        load_npz(tmp_path / "x.npz")


@pytest.mark.parametrize("missing", FOREIGN)
def test_what_others_files_lack_is_told(tmp_path, missing):
    """Datasets Z3."""
    np.savez(tmp_path / "x.npz", **{name: value for name, value in FOREIGN.items() if name != missing})
    with pytest.raises(hr.DatasetError, match=f"there is no .*{missing}"):
        load_npz(tmp_path / "x.npz")


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("observations", np.zeros((5, 1)), "observations: expected 7 rows"),
        ("actions", np.zeros(()), "actions: expected 5 rows"),
        ("rewards", np.zeros((5, 2)), "rewards"),
        ("observations/more", np.zeros(7), "observations.* is an array"),
        ("terminals", np.array([0, 0, 2, 0, 0]), "terminations: expected one array of booleans"),
        ("terminals", np.array([0, 1, 0, 0, 0]), "episode 0: terminations"),
        ("episode_lengths", np.array([5, 0]), "episode_lengths: expected one or more integers above 0"),
        ("episode_lengths", np.array([4, 2]), "expected"),
        ("episode_lengths", np.array([], int), "episode_lengths"),
    ],
)
def test_others_files_that_do_not_fit(tmp_path, name, value, told):
    """Datasets G11: an error that names file and field; episodes are looked at when they are read."""
    np.savez(tmp_path / "x.npz", **{**FOREIGN, name: value})
    with pytest.raises(hr.DatasetError, match=told) as caught:
        list(load_npz(tmp_path / "x.npz"))
    assert "x.npz" in str(caught.value)


def test_g11_space_is_taken_for_no_more_than_the_file_holds(tmp_path, monkeypatch):
    path = save_npz([episode(3)], tmp_path / "x.npz")
    monkeypatch.setattr(archive, "empty_array", None)
    header = np.lib.format.read_array_header_1_0
    monkeypatch.setitem(
        archive._HEADERS, (1, 0), lambda file: (header(file)[0] + (10**15,), False, np.dtype("f8"))
    )
    with pytest.raises(
        hr.DatasetError, match=r"x\.npz: headrace: expected float64\[1000000000000000\], got \d+ bytes"
    ):
        load_npz(path)


def test_a_zip_of_other_things(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(hr.DatasetError, match="readme.txt"):
        load_npz(tmp_path / "x.npz")
