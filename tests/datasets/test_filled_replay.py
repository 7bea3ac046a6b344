"""A dataset becomes a replay in one call."""

import numpy as np
import pytest

import headrace as hr
from headrace.datasets import load_npz, save_npz, to_replay


def episode(steps, start, *, terminated=True, **more):
    end = np.arange(steps) == steps - 1
    rows = np.arange(start, start + steps + 1, dtype=np.float32)
    observations = {"pose": rows, "pair": (rows, np.stack([rows, -rows], 1))}
    return hr.Episode(
        observations,
        np.arange(steps),
        np.ones(steps, np.float32),
        end & terminated,
        end & ~terminated,
        **more,
    )


EPISODES = [
    episode(4, 0, extras={"state": np.arange(5.0), "log_prob": np.full(4, 0.5)}, infos={"v": np.zeros(4)}),
    episode(
        2,
        10,
        terminated=False,
        extras={"state": np.arange(3.0), "log_prob": np.full(2, 0.5)},
        infos={"v": np.zeros(2)},
    ),
]


def test_all_transitions_are_there_with_the_columns_of_the_episodes(tmp_path):
    path = save_npz(EPISODES, tmp_path / "x")
    with load_npz(path) as dataset, to_replay(dataset, hr.Table.uniform(100), n_step=3, seed=0) as replay:
        assert len(replay.table("replay")) == 6
        assert list(replay.signature.columns) == [
            "action", "extras/log_prob", "extras/state", "observation/pair/0", "observation/pair/1", "observation/pose",
            "reward", "terminated", "truncated",
        ]  # fmt: skip
        found = next(replay.items("replay", 100, views=hr.views.transition(n_step=3, gamma=0.5)))
        assert found["reward"].tolist() == [1.75, 1.75, 1.5, 1.0, 1.5, 1.0]
        assert found["discount"].tolist() == [0.125, 0, 0, 0, 0.25, 0.5]
        assert found["next_observation"]["pose"].tolist() == [3, 4, 4, 4, 12, 12]
        stored = list(hr.datasets.episodes(replay))
    assert [each.observations["pair"][1].tolist() for each in stored] == [
        each.observations["pair"][1].tolist() for each in EPISODES
    ]
    assert [each.extras["state"].tolist() for each in stored] == [[0, 1, 2, 3, 4], [0, 1, 2]]


def test_priorities_and_draws_are_those_of_the_table_and_the_seed():
    def keys():
        with to_replay(EPISODES, hr.Table.prioritized(3, 0.6), seed=1) as replay:
            first = next(replay.items("replay", 9)).info.keys[0]
            return len(replay.table("replay")), (replay.sample(20).info.keys - first).tolist()

    assert keys() == keys()
    assert keys()[0] == 3  # The oldest left.


@pytest.mark.parametrize(
    ("source", "error", "told"),
    [
        ([], ValueError, "expected one episode or more, got none"),
        ([3], TypeError, "expected hr.Episode, got int"),
        ([EPISODES[0], episode(2, 0)], hr.SpecError, "extras"),
        ([EPISODES[0], 3], TypeError, "int"),
    ],
)
def test_what_is_not_a_dataset_is_refused(source, error, told):
    with pytest.raises(error, match=told):
        to_replay(source, hr.Table.uniform(100))
