"""Step writers, observers and loaders work over any object with the interface of a replay."""

import numpy as np
import pytest

import headrace as hr
from headrace.replay.interface import ReplayLike
from headrace.replay.public import core_of

STEP = {"observation": 0.0, "action": 0, "reward": 0.0, "terminated": False, "truncated": False}
FRAME = hr.Trajectory(hr.StepType.FIRST, 0.0, 0, (), hr.StepType.MID, 0.0, 1.0)


class Remote:
    """A replay that is reached from afar: it has the interface, and nothing of what is behind it."""

    def __init__(self, replay):
        for name in dir(ReplayLike):
            if not name.startswith("_") and name != "is_closed":
                setattr(self, name, getattr(replay, name))
        self._is_closed = lambda: replay.is_closed

    @property
    def is_closed(self):
        return self._is_closed()


def new_replay(example):
    table = hr.Table(
        "t", sampler=hr.selectors.Fifo(), remover=hr.selectors.Fifo(), max_size=100, max_times_sampled=1
    )
    return hr.Replay(hr.Signature.like(example), [table])


def test_a_step_writer_works_through_the_interface():
    rules = [hr.NStepRule("t", 2, priority=lambda rows: 1.0), hr.EpisodeRule("t", 10)]
    with new_replay(STEP) as replay:
        with hr.StepWriter(Remote(replay), rules) as writer:
            writer.add_first(0.0)
            keys = [key for t in range(3) for key in writer.add(t, 1.0, t == 2, False, t + 1.0)]
        assert len(keys) == len(replay.table("t")) == 4
        assert replay.final_columns == {"observation"}


def test_lanes_work_through_the_interface():
    with new_replay(STEP) as replay:
        with hr.TransitionWriter(Remote(replay), "t", lanes=2, autoreset="next_step") as writer:
            zeros, no = np.zeros(2), np.zeros(2, np.bool_)
            writer.add_first(zeros)
            for end in (no, np.array([True, False]), no):
                writer.add(np.zeros(2, np.int64), zeros, end, no, zeros)
        assert len(replay.table("t")) == 5


@pytest.mark.parametrize("observer", [hr.AddTrajectoryObserver, hr.AddEpisodeObserver])
def test_observers_work_through_the_interface(observer):
    with new_replay(FRAME) as replay:
        with observer(Remote(replay), "t", 2) as observe:
            observe(FRAME._replace(next_step_type=hr.StepType.LAST))
            observe(FRAME._replace(step_type=hr.StepType.LAST, next_step_type=hr.StepType.FIRST))
        assert replay.sample("t", 1).data.step_type.tolist() == [[0, 2]]


def test_a_loader_works_through_the_interface():
    with new_replay({"x": 0}) as replay:
        with replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
            writer.append({"x": 7})
        with hr.loaders.Loader(Remote(replay), "t", 1, prefetch=0) as loader:
            assert next(loader).data["x"].tolist() == [7]
        with pytest.raises(KeyError, match="no table 'nobody'; there are 't'"):
            hr.loaders.Loader(Remote(replay), "nobody", 1)


@pytest.mark.parametrize(
    ("use", "missing"),
    [
        (lambda replay: hr.TransitionWriter(replay, "t"), "lacks row_writer, check_open;"),
        (lambda replay: hr.AddEpisodeObserver(replay, "t", 9), "lacks row_writer, check_open;"),
        (lambda replay: hr.loaders.Loader(replay, "t", 1), "lacks sample;"),
    ],
)
def test_what_lacks_a_part_is_told_which(use, missing):
    class Half:
        signature = table = is_closed = None

        def __repr__(self):
            return "<half of a replay>"

    with pytest.raises(TypeError, match=f"expected a Replay.*got Half: <half of a replay>, which {missing}"):
        use(Half())
    with pytest.raises(TypeError, match="got type: .* which lacks an instance"):
        use(hr.Replay)


def test_what_needs_the_store_says_so_of_a_replay_that_has_none():
    with new_replay(STEP) as replay, pytest.raises(TypeError, match="a Replay of this process.*got Remote"):
        core_of(Remote(replay))
