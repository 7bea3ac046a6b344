"""Long episodes through the writers: a step costs the same at the end as at the beginning."""

import sys
import time

import numpy as np
import pytest

import headrace as hr
from headrace.replay.intake.selection import Selection
from headrace.tables.description.rules import PatternWindow
from headrace.trajectories.writers.unused_rows import SelectedRows

STEPS, PARTS = 12_000, 6
QUEUE = {"sampler": hr.selectors.Fifo(), "remover": hr.selectors.Fifo(), "max_size": 4}


def assert_flat(marks):
    # Whatever looks at all the steps before it would make the last part eleven times as slow as the first.
    each = np.diff(marks)
    assert min(each[PARTS // 2 :]) < 4 * min(each[: PARTS // 2])


def test_an_episode_writer_takes_a_long_episode_at_one_pace():
    step = {
        "observation": np.zeros(2),
        "action": 0,
        "reward": 0.0,
        "terminated": False,
        "truncated": False,
    }
    replay, marks = hr.Replay(hr.Signature.like(step), [hr.Table("t", **QUEUE)]), [time.process_time()]
    with hr.EpisodeWriter(replay, "t", max_length=STEPS) as writer:
        writer.add_first(np.zeros(2))
        for t in range(STEPS):
            writer.add(t, 1.0, t == STEPS - 1, False, np.full(2, t + 1.0))
            if (t + 1) % (STEPS // PARTS) == 0:
                marks.append(time.process_time())
    assert_flat(marks)
    observations = replay.sample("t", 1).data["observation"]
    assert observations[0, :, 1].tolist() == list(range(STEPS + 1))
    (episode,) = hr.datasets.episodes(replay)
    assert (len(episode), episode.return_) == (STEPS, STEPS)
    replay.close()


def test_an_episode_observer_takes_a_long_episode_at_one_pace():
    def frame(t):
        kind = (0, 1) if t == 0 else (2, 0) if t == STEPS else (1, 2 if t == STEPS - 1 else 1)
        return hr.Trajectory(kind[0], np.full(2, t, np.float32), 0, (), kind[1], 1.0, 1.0)

    replay, marks = hr.Replay(hr.Signature.like(frame(0)), [hr.Table("t", **QUEUE)]), [time.process_time()]
    with hr.AddEpisodeObserver(replay, "t", max_sequence_length=STEPS + 1) as observer:
        for t in range(STEPS + 1):
            observer(frame(t))
            if (t + 1) % (STEPS // PARTS) == 0:
                marks.append(time.process_time())
    assert_flat(marks)
    assert replay.sample("t", 1).data.observation[0, :, 0].tolist() == list(range(STEPS + 1))
    replay.close()


@pytest.mark.parametrize("most", [2**30, 2**40, sys.maxsize])
def test_a_limit_may_be_larger_than_any_episode(most):
    """A14, E1."""
    step = {"observation": 0.0, "action": 0, "reward": 0.0, "terminated": False, "truncated": False}
    with hr.Replay(hr.Signature.like(step), [hr.Table("t", **QUEUE)]) as replay:
        with hr.EpisodeWriter(replay, "t", max_length=most) as writer:
            for _ in range(2):
                writer.add_first(0.0)
                writer.add(0, 1.0, True, False, 1.0)
        assert replay.sample("t", 2).data["observation"].tolist() == [[0.0, 1.0]] * 2

    def frame(step_type, following):
        return hr.Trajectory(step_type, 0.0, 0, (), following, 1.0, 1.0)

    with hr.Replay(hr.Signature.like(frame(0, 1)), [hr.Table("t", **QUEUE)]) as replay:
        with hr.AddEpisodeObserver(replay, "t", max_sequence_length=most) as observer:
            observer(frame(0, 2))
            assert len(observer(frame(2, 0))) == 1


def test_after_a_long_episode_short_ones_touch_only_their_own_rows():
    chosen = SelectedRows([PatternWindow("t", 2)], lanes=1)
    chosen.note(Selection({0: np.array([True])}, {}), np.array([999_999]))
    assert np.flatnonzero(chosen.take(0, 1_000_000)).tolist() == [999_998, 999_999]
    # The lane keeps its long row; nothing beyond an episode's own rows is looked at or cleared.
    chosen._steps[0, 100:] = 1
    for newest in (3, 50):
        chosen.note(Selection({0: np.array([True])}, {}), np.array([newest]))
        assert np.flatnonzero(chosen.take(0, newest + 1)).tolist() == [newest - 1, newest]
        assert not chosen.take(0, 100).any()
    assert (chosen._steps[0, 100:] == 1).all()
