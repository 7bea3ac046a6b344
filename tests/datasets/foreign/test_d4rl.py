"""D4RL files, written here in the layouts that its datasets have."""

import h5py
import numpy as np
import pytest

import headrace as hr
from headrace.datasets import load_d4rl

# Lengths 3 (terminal), 2 (timeout), 1 (terminal), 2 (unfinished). Observations are 100 * episode + step.
OBSERVATIONS = np.array([0, 1, 2, 100, 101, 200, 300, 301], np.float32)[:, None]
COLUMNS = {
    "observations": OBSERVATIONS,
    "next_observations": OBSERVATIONS + 1,
    "actions": np.arange(16, dtype=np.float32).reshape(8, 2),
    "rewards": np.arange(8, dtype=np.float32),
    "terminals": np.array([0, 0, 1, 0, 0, 1, 0, 0], bool),
    "timeouts": np.array([0, 0, 0, 0, 1, 0, 0, 0], bool),
}


def write(folder, columns):
    path = folder / "x.hdf5"
    with h5py.File(path, "w") as file:
        for name, value in columns.items():
            file[name] = value
    return path


def without(*names):
    return {name: value for name, value in COLUMNS.items() if name not in names}


def observations(dataset):
    return [episode.observations[:, 0].tolist() for episode in dataset]


def ends(dataset):
    return [(episode.terminated, episode.truncated) for episode in dataset]


def test_the_layout_of_mujoco_v2(tmp_path):
    """With next_observations, infos, and the behaviour policy under metadata."""
    policy = {"metadata/policy/fc0/weight": np.eye(2), "metadata/algorithm": b"SAC", "metadata/iteration": 3}
    infos = {"infos/qpos": np.arange(8.0), "infos/action_log_probs": np.zeros(8)}
    with load_d4rl(write(tmp_path, {**COLUMNS, **infos, **policy})) as dataset:
        assert (len(dataset), dataset.total_steps, dataset.format_name) == (4, 8, "d4rl")
        assert observations(dataset) == [[0, 1, 2, 3], [100, 101, 102], [200, 201], [300, 301, 302]]
        assert ends(dataset) == [(True, False), (False, True), (True, False), (False, False)]
        assert dataset[1].actions.tolist() == [[6, 7], [8, 9]]
        assert dataset[1].rewards.dtype == np.float32
        assert dataset[1].infos["qpos"].tolist() == [3, 4]
        assert (dataset.metadata["algorithm"], dataset.metadata["iteration"]) == ("SAC", 3)
        assert dataset.metadata["policy"]["fc0"]["weight"].shape == (2, 2)


def test_without_next_observations_one_says_what_ends_an_episode(tmp_path):
    path = write(tmp_path, without("next_observations"))
    with pytest.raises(hr.DatasetError, match=r"x\.hdf5: there is no next_observations.*missing_final"):
        load_d4rl(path)
    with pytest.raises(
        ValueError, match="missing_final: expected 'error' or 'drop' or 'repeat', got 'guess'"
    ):
        load_d4rl(path, missing_final="guess")


def test_the_last_transitions_are_dropped(tmp_path):
    """Datasets K11, for D4RL: what is left is truncated, and an episode of one transition is not there."""
    infos = {"infos/qpos": np.arange(8.0)}
    dataset = load_d4rl(write(tmp_path, {**without("next_observations"), **infos}), missing_final="drop")
    assert observations(dataset) == [[0, 1, 2], [100, 101], [300, 301]]
    assert ends(dataset) == [(False, True)] * 3
    assert [each.rewards.tolist() for each in dataset] == [[0, 1], [3], [6]]
    assert [each.infos["qpos"].tolist() for each in dataset] == [[0, 1], [3], [6]]
    assert dataset.total_steps == 4


def test_the_last_observation_of_a_terminated_episode_is_repeated(tmp_path):
    dataset = load_d4rl(write(tmp_path, without("next_observations")), missing_final="repeat")
    assert observations(dataset) == [[0, 1, 2, 2], [100, 101], [200, 200], [300, 301]]
    assert ends(dataset) == [(True, False), (False, True), (True, False), (False, True)]
    assert [each.rewards.tolist() for each in dataset] == [[0, 1, 2], [3], [5], [6]]


def test_a_file_of_which_nothing_is_left(tmp_path):
    columns = {name: value[5:6] for name, value in without("next_observations").items()}
    with pytest.raises(hr.DatasetError, match="no episode has a transition with the observation after it"):
        load_d4rl(write(tmp_path, columns), missing_final="drop")


def test_without_timeouts_the_limit_of_the_environment_ends_episodes(tmp_path):
    path = write(tmp_path, without("timeouts"))
    with pytest.raises(hr.DatasetError, match="there is no timeouts.*max_episode_steps"):
        load_d4rl(path)
    with pytest.raises(ValueError, match="max_episode_steps: expected None or at least 1, got 0"):
        load_d4rl(path, max_episode_steps=0)
    dataset = load_d4rl(path, max_episode_steps=2)
    assert [len(each) for each in dataset] == [2, 1, 2, 1, 2]
    assert ends(dataset) == [(False, True), (True, False), (False, True), (True, False), (False, True)]


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 50])
def test_the_limit_counts_as_d4rl_does(tmp_path, limit):
    terminals = np.random.default_rng(limit).random(200) < 0.1
    columns = {name: np.zeros((200, 1)) for name in ("observations", "next_observations", "actions")}
    path = write(tmp_path, {**columns, "rewards": np.zeros(200), "terminals": terminals})
    lengths, steps = [], 0
    for terminal in terminals:
        steps += 1
        if terminal or steps == limit:
            lengths.append(steps)
            steps = 0
    found = [len(each) for each in load_d4rl(path, max_episode_steps=limit)]
    assert found == lengths + [steps] * (steps > 0)


def test_rewards_and_flags_of_one_column(tmp_path):
    """Some of D4RL's files have them as [N, 1], which its own reader flattens."""
    single = {name: COLUMNS[name][:, None] for name in ("rewards", "terminals", "timeouts")}
    dataset = load_d4rl(write(tmp_path, {**COLUMNS, **single}))
    assert list(dataset) == list(load_d4rl(write(tmp_path, COLUMNS)))


@pytest.mark.parametrize("missing", ["observations", "actions", "rewards", "terminals"])
def test_what_the_file_lacks_is_told(tmp_path, missing):
    """Datasets G11."""
    with pytest.raises(hr.DatasetError, match=rf"x\.hdf5: expected the columns .* no .*{missing}"):
        load_d4rl(write(tmp_path, without(missing)))


@pytest.mark.parametrize("has_timeouts", [True, False])
@pytest.mark.parametrize("terminals", [np.zeros((8, 2)), np.full(8, 2), np.zeros(7), np.zeros(())])
def test_flags_that_do_not_fit_are_told(tmp_path, terminals, has_timeouts):
    """Datasets G11."""
    path = write(tmp_path, {**without(*() if has_timeouts else ("timeouts",)), "terminals": terminals})
    with pytest.raises(hr.DatasetError, match=r"x\.hdf5: (terminals|terminations)"):
        load_d4rl(path, max_episode_steps=100)


def test_files_of_another_kind(tmp_path):
    """Datasets G11."""
    with pytest.raises(FileNotFoundError, match=r"none\.hdf5"):
        load_d4rl(tmp_path / "none.hdf5")
    other = tmp_path / "other.hdf5"
    other.write_bytes(b"no dataset")
    with pytest.raises(hr.DatasetError, match="other.hdf5: expected an HDF5 file"):
        load_d4rl(other)
    path = write(tmp_path, COLUMNS)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(hr.DatasetError, match=r"x\.hdf5"):
        load_d4rl(path)


def test_into_a_replay(tmp_path):
    """Datasets G12: terminated and truncated ends stay apart."""
    dataset = load_d4rl(write(tmp_path, COLUMNS))
    step = {
        "observation": np.zeros(1, np.float32),
        "action": np.zeros(2, np.float32),
        "reward": np.float32(0),
        "terminated": False,
        "truncated": False,
    }
    with hr.Replay(hr.Signature.like(step), [hr.Table.uniform(100)]) as replay:
        with hr.TransitionWriter(replay) as writer:
            for episode in dataset:
                writer.add_episode(episode)
        back = list(hr.datasets.episodes(replay))
    assert observations(back)[:3] == observations(dataset)[:3]
    assert ends(back)[:3] == ends(dataset)[:3]
