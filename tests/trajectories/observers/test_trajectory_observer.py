"""hr.AddTrajectoryObserver: fixed windows within one episode (trajectories O1 to O3, O7, O8, O11, M1, M2, M4, U5)."""

import itertools
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.tables.description.selectors import Fifo

P = "P"


def frame(number, kind=(1, 1)):
    """A frame that can be told by its number; a boundary has what the driver gave, not zeros (trajectories F4)."""
    return hr.Trajectory(
        step_type=kind[0],
        observation={"n": number, "camera": np.array([number, -number], np.float32)},
        action=number + 1,
        policy_info=(),
        next_step_type=kind[1],
        reward=number / 4,
        discount=1.0,
    )


SIGNATURE = hr.Signature.like(frame(0))


def kinds(transitions):
    """The pairs of step types of a whole episode, boundary included (trajectories F2)."""
    if transitions == 0:
        return [(2, 0)]
    middle = [(1, 1)] * (transitions - 2)
    real = [(0, 2)] if transitions == 1 else [(0, 1), *middle, (1, 2)]
    return [*real, (2, 0)]


def episode(transitions, first=0):
    return [frame(first + t, kind) for t, kind in enumerate(kinds(transitions))]


def unfinished(frames, first=0):
    return episode(frames + 1, first)[:frames]


def new_replay(*names, **settings):
    tables = [
        hr.Table(name, sampler=Fifo(), remover=Fifo(), max_size=10_000, max_times_sampled=1)
        for name in names or ("t",)
    ]
    return hr.Replay(SIGNATURE, tables, seed=0, **settings)


def take(replay, table="t"):
    """The oldest item: its key, and the numbers of its frames, P for those that were invented."""
    batch = replay.sample(table, 1)
    data = batch.data
    numbers = np.atleast_1d(data.observation["n"][0])
    length = len(numbers)
    mask = np.ones(length, bool) if batch.mask is None else batch.mask[0]
    for name, column in SIGNATURE.flatten(data).items():
        column = column.reshape(length, *column.shape[1 if length == 1 and column.ndim < 3 else 2 :])
        # M2: zeros, but for the step types of a boundary.
        assert (column[~mask] == {"step_type": 2, "next_step_type": 0}.get(name, 0)).all(), name
        assert column.dtype == SIGNATURE.columns[name].dtype
    camera = data.observation["camera"].reshape(length, 2)
    assert (camera[mask] == np.stack([numbers, -numbers], 1)[mask]).all()
    assert (np.atleast_1d(data.action[0])[mask] == numbers[mask] + 1).all()
    assert (np.atleast_1d(data.reward[0])[mask] == numbers[mask] / 4).all()
    return int(batch.info.keys[0]), [int(n) if real else P for n, real in zip(numbers, mask, strict=True)]


def items(replay, table="t"):
    return [take(replay, table)[1] for _ in range(len(replay.table(table)))]


def record(frames, *, replay=None, **settings):
    """What whole episodes become."""
    with new_replay() if replay is None else replay as replay:
        with hr.AddTrajectoryObserver(replay, "t", **settings) as observer:
            for each in frames:
                observer(each)
        return items(replay), observer.statistics()


# ---- worked examples -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "expected", "dropped"),
    [
        ({}, [[0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5]], 0),
        (
            {"pad_end_of_episodes": True},
            [[0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5], [3, 4, 5, P], [4, 5, P, P], [5, P, P, P]],
            0,
        ),
        ({"stride_length": 4}, [[0, 1, 2, 3]], 2),
        ({"stride_length": 4, "pad_end_of_episodes": True}, [[0, 1, 2, 3], [4, 5, P, P]], 0),
        (
            {"stride_length": 4, "pad_end_of_episodes": True, "tile_end_of_episodes": False},
            [[0, 1, 2, 3]],
            2,
        ),
    ],
)
def test_the_table_of_the_worked_example(settings, expected, dropped):
    """T = 5: frames 0 to 4 and the boundary 5; L = 4."""
    found, statistics = record(episode(5), sequence_length=4, **settings)
    assert found == expected
    assert statistics.steps_dropped == dropped
    assert (statistics.steps_written, statistics.items_written) == (6, len(expected))
    assert (statistics.episodes, statistics.steps_cached) == (1, 0)


@pytest.mark.parametrize(
    ("transitions", "settings", "expected"),
    [
        (2, {"sequence_length": 4}, []),
        (
            2,
            {"sequence_length": 4, "pad_end_of_episodes": True},
            [[0, 1, 2, P], [1, 2, P, P], [2, P, P, P]],
        ),
        (4, {"sequence_length": 2, "stride_length": 3}, [[0, 1], [3, 4]]),
        # O2, third row: a run shorter than a window is padded whatever the stride, once.
        (
            2,
            {"sequence_length": 4, "pad_end_of_episodes": True, "tile_end_of_episodes": False},
            [[0, 1, 2, P]],
        ),
        (
            1,
            {
                "sequence_length": 3,
                "stride_length": 7,
                "pad_end_of_episodes": True,
                "tile_end_of_episodes": False,
            },
            [[0, 1, P]],
        ),
        (
            2,
            {"sequence_length": 3, "pad_end_of_episodes": True, "tile_end_of_episodes": False},
            [[0, 1, 2]],
        ),
        # A lone boundary is a run of one frame (O6), and windows of one frame count it as O2 says.
        (0, {"sequence_length": 2, "pad_end_of_episodes": True}, [[0, P]]),
        (2, {"sequence_length": 1}, [[0], [1], [2]]),
    ],
)
def test_other_examples(transitions, settings, expected):
    assert record(episode(transitions), **settings)[0] == expected


def test_o7_one_unfinished_frame_is_padded():
    with (
        new_replay() as replay,
        hr.AddTrajectoryObserver(
            replay, "t", sequence_length=4, stride_length=4, pad_end_of_episodes=True
        ) as observer,
    ):
        observer(frame(0, (0, 1)))
        assert len(observer.reset()) == 1
        assert observer.reset() == []
        assert items(replay) == [[0, P, P, P]]


def test_o7_no_window_is_written_twice():
    """k = 5, L = 2: the four windows and no fifth, however the run ends and however often."""
    for end in ("reset", "close", "leave"):
        with new_replay() as replay:
            with hr.AddTrajectoryObserver(replay, "t", sequence_length=2) as observer:
                for each in unfinished(5):
                    observer(each)
                if end == "reset":
                    observer.reset()
                    observer.reset()
                elif end == "close":
                    observer.close()
                    observer.close()
            assert items(replay) == [[0, 1], [1, 2], [2, 3], [3, 4]]
            assert observer.statistics().items_written == 4


def test_o7_frames_in_no_item_are_dropped_with_a_warning():
    with new_replay() as replay, hr.AddTrajectoryObserver(replay, "t", sequence_length=4) as observer:
        for each in unfinished(2):
            observer(each)
        with pytest.warns(
            UserWarning, match="2 of 2 frames .* dropped.* keep them: pad_end_of_episodes=True"
        ):
            assert observer.reset(True) == []
        assert observer.statistics().steps_dropped == 2
        # The state is that of a fresh run.
        for each in episode(3, 10):
            observer(each)
        assert items(replay) == [[10, 11, 12, 13]]


@pytest.mark.parametrize(
    ("settings", "advice"),
    [
        ({}, "pad_end_of_episodes=True"),
        ({"pad_end_of_episodes": True, "tile_end_of_episodes": False}, "tile_end_of_episodes=True"),
        ({"stride_length": 5}, "pad_end_of_episodes=True and a stride_length of at most sequence_length=4"),
        ({"stride_length": 5, "pad_end_of_episodes": True}, "a stride_length of at most sequence_length=4"),
    ],
)
def test_p2_the_warning_names_settings_that_keep_every_frame(settings, advice):
    settings = {"sequence_length": 4, "stride_length": 3} | settings
    frames = unfinished(5)  # One more than a window.
    with new_replay() as replay, hr.AddTrajectoryObserver(replay, "t", **settings) as observer:
        for each in frames:
            observer(each)
        with pytest.warns(UserWarning, match=f"1 of 5 frames .*To keep them: {advice}$"):
            observer.close()
        assert observer.statistics().steps_dropped == 1
    changes = {"pad_end_of_episodes": True, "tile_end_of_episodes": True, "stride_length": 4}
    settings |= {name: value for name, value in changes.items() if name in advice}
    assert record(frames, **settings)[1].steps_dropped == 0


def test_o7_reset_false_drops_what_is_in_no_item_yet_and_does_not_warn():
    with (
        new_replay() as replay,
        hr.AddTrajectoryObserver(
            replay, "t", sequence_length=3, stride_length=3, pad_end_of_episodes=True
        ) as observer,
    ):
        for each in unfinished(5):
            observer(each)
        assert observer.statistics().steps_cached == 5
        assert observer.reset(False) == []
        assert observer.reset(False) == []
        assert observer.statistics().steps_dropped == 2
        # The stride begins anew (W4).
        for each in episode(3, 10):
            observer(each)
        assert items(replay) == [[0, 1, 2], [10, 11, 12], [13, P, P]]
        assert observer.statistics().episodes == 2


def test_o6_a_first_frame_ends_an_unfinished_run():
    """The driver was restarted: as reset(True), and no window spans both."""
    with new_replay() as replay:
        with hr.AddTrajectoryObserver(replay, "t", sequence_length=3, pad_end_of_episodes=True) as observer:
            keys = [observer(each) for each in [*unfinished(2), *episode(2, 10)]]
        assert [len(each) for each in keys] == [0, 0, 2, 0, 3]
        assert items(replay) == [[0, 1, P], [1, P, P], [10, 11, 12], [11, 12, P], [12, P, P]]
        assert observer.statistics().episodes == 2
    with new_replay() as replay, hr.AddTrajectoryObserver(replay, "t", sequence_length=3) as observer:
        for each in unfinished(2):
            observer(each)
        with pytest.warns(UserWarning, match="2 of 2 frames"):
            assert observer(frame(10, (0, 1))) == []
        observer(frame(11, (1, 2)))
        assert len(observer(frame(12, (2, 0)))) == 1
        assert items(replay) == [[10, 11, 12]]


def test_o3_keys_come_table_by_table_for_each_window():
    with new_replay("a", "b") as replay:
        with hr.AddTrajectoryObserver(
            replay, ["b", "a"], sequence_length=2, pad_end_of_episodes=True, priority=2.5
        ) as observer:
            keys = [observer(each) for each in episode(2)]
            assert [len(each) for each in keys] == [0, 2, 4]
            assert observer.statistics().items_written == 6
        flat = list(itertools.chain(*keys))
        assert [take(replay, "b") for _ in range(3)] == list(
            zip(flat[0::2], [[0, 1], [1, 2], [2, P]], strict=True)
        )
        assert replay.update_priorities("a", flat[1::2], [1.0, 2.0, 3.0]) == 3  # U6
        assert [replay.sample("a", 1).info.priorities[0] for _ in range(3)] == [1.0, 2.0, 3.0]


def test_u5_a_frame_is_stored_once_for_all_windows_and_tables():
    with new_replay("a", "b", "c") as replay:
        with hr.AddTrajectoryObserver(
            replay, ["a", "b", "c"], sequence_length=16, pad_end_of_episodes=True
        ) as observer:
            for number in range(3):
                for each in episode(100, 1000 * number):
                    observer(each)
        assert replay.statistics().store.rows == 303  # M4: padding takes no room.
        assert len(replay.table("a")) == len(replay.table("c")) == 303


def test_m1_and_m2_in_a_batch():
    table = hr.Table("t", sampler=Fifo(), remover=Fifo(), max_size=10, max_times_sampled=1)
    with hr.Replay(SIGNATURE, [table]) as replay:
        with hr.AddTrajectoryObserver(replay, "t", sequence_length=3, pad_end_of_episodes=True) as observer:
            for each in episode(2):
                observer(each)
        batch = replay.sample("t", 3)
    assert isinstance(batch.data, hr.Trajectory)
    assert batch.mask.tolist() == [[True] * 3, [True, True, False], [True, False, False]]
    assert batch.data.observation["n"].tolist() == [[0, 1, 2], [1, 2, 0], [2, 0, 0]]
    assert batch.data.observation["camera"].shape == (3, 3, 2)
    assert batch.data.is_boundary().tolist() == [
        [False, False, True],
        [False, True, True],
        [True, True, True],
    ]
    assert batch.data.next_step_type.tolist() == [[1, 2, 0], [2, 0, 0], [0, 0, 0]]
    # The real boundary is stored as it came, the invented ones are zeros.
    assert batch.data.reward.tolist() == [[0.0, 0.25, 0.5], [0.25, 0.5, 0.0], [0.5, 0.0, 0.0]]


# ---- against a model -------------------------------------------------------------------------------------------


def model_windows(numbers, length, stride, mode):
    """The windows of a run in the order in which they are made, from their definition."""
    run = list(numbers)
    if mode == "short" and len(run) < length:
        return [run + [P] * (length - len(run))]
    starts = range(0, len(run), stride)
    full = [run[start : start + length] for start in starts if start + length <= len(run)]
    if mode != "tile":
        return full
    return [(run[start:] + [P] * length)[:length] for start in starts]


class Model:
    """Lists in place of a store."""

    def __init__(self, length, stride, mode):
        self.length, self.stride, self.mode = length, stride, mode
        self.run, self.items = [], []
        self.written = self.dropped = self.episodes = 0

    def frame(self, number):
        self.run.append(number)
        self.written += 1
        start = len(self.run) - self.length
        if start >= 0 and start % self.stride == 0:
            self.items.append(self.run[start:])

    def end(self, *, write=True):
        """Returns how many frames were dropped."""
        if not self.run:
            return 0
        regular = model_windows(self.run, self.length, self.stride, "drop")
        windows = model_windows(self.run, self.length, self.stride, self.mode) if write else regular
        self.items += windows[len(regular) :]
        used = {number for window in windows for number in window}
        dropped = sum(number not in used for number in self.run)
        self.dropped += dropped
        self.episodes += 1
        self.run = []
        return dropped


MODES = {
    "drop": {},
    "tile": {"pad_end_of_episodes": True},
    "short": {"pad_end_of_episodes": True, "tile_end_of_episodes": False},
}
steps = st.one_of(
    st.tuples(st.just("episode"), st.integers(0, 9)),
    st.tuples(st.just("unfinished"), st.integers(1, 9)),
    st.tuples(st.just("reset"), st.booleans()),
    st.tuples(st.just("reopen"), st.just(0)),
    st.tuples(st.just("mistake"), st.just(0)),
)


@settings(max_examples=150)
@given(
    length=st.integers(1, 5),
    stride=st.integers(1, 7),
    mode=st.sampled_from(sorted(MODES)),
    history=st.lists(steps, max_size=12),
)
def test_any_history_of_frames_resets_and_closes(length, stride, mode, history):
    """W5: each window of each run once and in order, whatever ended the run; and the counts of O11."""
    with new_replay("a", "b", capacity=400) as replay:  # Small pages: runs go over their ends.
        observer = hr.AddTrajectoryObserver(replay, ["a", "b"], length, stride, **MODES[mode])
        model = Model(length, stride, mode)
        keys = []
        number = 0
        for name, argument in [*history, ("close", 0)]:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                warned = 0
                if name in ("episode", "unfinished"):
                    pairs = kinds(argument) if name == "episode" else kinds(argument + 1)[:argument]
                    # A run that is open is interrupted by the first frame; a lone boundary would be a mistake in it.
                    if model.run:
                        pairs = [(0, 2), (2, 0)] if pairs == [(2, 0)] else pairs
                        warned = model.end()
                    for pair in pairs:
                        number += 1
                        keys += observer(frame(number, pair))
                        model.frame(number)
                        if pair == (2, 0):
                            model.end()
                elif name == "reset":
                    keys += observer.reset(argument)
                    warned = model.end(write=argument) if argument else model.end(write=False) * 0
                elif name == "mistake":
                    before = observer.statistics()
                    with pytest.raises(ValueError):
                        observer(frame(0, (2, 1)))
                    with pytest.raises(hr.SpecError):
                        observer(frame(np.zeros(1), (0, 1)))
                    assert observer.statistics() == before
                else:
                    observer.close()
                    warned = model.end()
                    if name == "reopen":
                        observer.open()
            assert sum(int(str(each.message).split()[0]) for each in caught) == warned
            found = observer.statistics()
            assert found.steps_written == model.written
            assert found.steps_dropped == model.dropped
            assert found.episodes == model.episodes
            assert found.steps_cached == len(model.run)
            assert found.items_written == 2 * len(model.items)
        assert items(replay, "a") == model.items
        assert items(replay, "b") == model.items
        assert len(set(keys)) == len(keys) <= 2 * len(model.items)  # close() tells no keys
