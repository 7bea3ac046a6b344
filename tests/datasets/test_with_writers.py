"""Episodes into a replay with the writers, and out of it again (datasets G2, G12)."""

import numpy as np
import pytest

import headrace as hr


def episode(steps, start, terminated, truncated):
    end = np.arange(steps) == steps - 1
    return hr.Episode(
        {"pose": np.arange(start, start + steps + 1, dtype=np.float32)},
        np.arange(steps),
        np.ones(steps),
        end & terminated,
        end & truncated,
        extras={"state": np.arange(steps + 1.0), "log_prob": np.arange(steps) * 0.5},
    )


EPISODES = [episode(3, 0, True, False), episode(2, 10, False, True), episode(5, 20, False, False)]
STEP = {
    "observation": {"pose": np.float32(0)},
    "action": 0,
    "reward": 0.0,
    "terminated": False,
    "truncated": False,
    "extras": {"state": 0.0, "log_prob": 0.0},
}


def table():
    return hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=100)


@pytest.mark.parametrize(
    "make_writer",
    [
        lambda replay: hr.TransitionWriter(replay, "t", 3),
        lambda replay: hr.SequenceWriter(replay, "t", 3, 2, hr.EndOfEpisode.PAD),
        lambda replay: hr.EpisodeWriter(replay, "t", 10),
        lambda replay: hr.StepWriter(replay, [hr.ItemRule("t", 2)]),
    ],
)
def test_a_dataset_into_a_replay_and_out_of_it(tmp_path, make_writer):
    path = hr.datasets.save_npz(EPISODES, tmp_path / "in")
    with hr.Replay(hr.Signature.like(STEP), [table()]) as replay:
        with make_writer(replay) as writer, hr.datasets.load_npz(path) as dataset:
            for each in dataset:
                writer.add_episode(each)
        assert list(hr.datasets.episodes(replay)) == EPISODES
        out = hr.datasets.save_npz(replay, tmp_path / "out")
    assert list(hr.datasets.load_npz(out)) == EPISODES


def frame(kind, following, number, discount):
    return hr.Trajectory(
        np.int32(kind),
        np.float32(number),
        number,
        (),
        np.int32(following),
        np.float32(number),
        np.float32(discount),
    )


def test_frames_of_an_observer():
    with hr.Replay(hr.Signature.like(frame(0, 0, 0, 1)), [table()]) as replay:
        with hr.AddTrajectoryObserver(replay, "t", 1) as observer:
            for each in (
                frame(0, 1, 0, 1), frame(1, 2, 1, 0), frame(2, 0, 2, 1),
                frame(0, 2, 3, 1), frame(2, 0, 4, 1),
                frame(0, 1, 5, 1),
            ):  # fmt: skip
                observer(each)
            found = hr.datasets.episodes(replay)
            one, two = found
    assert one == hr.Episode(
        np.arange(3, dtype=np.float32), [0, 1], np.array([0, 1], np.float32), [False, True], [False, False]
    )
    assert (two.terminated, two.truncated) == (False, True)
    assert found.left_out == 1
