"""hr.AddEpisodeObserver: one item for each episode (trajectories E1 to E5, M3)."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.tables.description.selectors import Fifo


def frame(number, kind=(1, 1)):
    return hr.Trajectory(
        step_type=kind[0],
        observation=np.array([number, -number], np.float32),
        action=number,
        policy_info={"log_prob": number / 4},
        next_step_type=kind[1],
        reward=0.0,
        discount=1.0,
    )


SIGNATURE = hr.Signature.like(frame(0))


def kinds(transitions):
    if transitions == 0:
        return [(2, 0)]
    real = [(0, 2)] if transitions == 1 else [(0, 1), *[(1, 1)] * (transitions - 2), (1, 2)]
    return [*real, (2, 0)]


def episode(transitions, first=0):
    return [frame(first + t, kind) for t, kind in enumerate(kinds(transitions))]


def unfinished(frames, first=0):
    return episode(frames + 1, first)[:frames]


def new_replay(*names):
    tables = [
        hr.Table(name, sampler=Fifo(), remover=Fifo(), max_size=10_000, max_times_sampled=1)
        for name in names or ("t",)
    ]
    return hr.Replay(SIGNATURE, tables, seed=0)


def items(replay, table="t"):
    found = []
    for _ in range(len(replay.table(table))):
        batch = replay.sample(table, 1)
        assert batch.mask is None or batch.mask.all()  # M3: alone an item has its own length.
        numbers = np.atleast_1d(batch.data.action[0]).tolist()
        assert (batch.data.observation.reshape(-1, 2) == np.array([[n, -n] for n in numbers])).all()
        assert np.atleast_1d(batch.data.policy_info["log_prob"][0]).tolist() == [n / 4 for n in numbers]
        found.append(numbers)
    return found


# ---- worked examples -------------------------------------------------------------------------------------------


def test_the_example():
    """Episodes of 3 and 2 transitions, max 4."""
    with new_replay() as replay, hr.AddEpisodeObserver(replay, "t", 4) as observer:
        keys = [observer(each) for each in [*episode(3), *episode(2, 100)]]
        assert [len(each) for each in keys] == [0, 0, 0, 1, 0, 0, 1]
        assert items(replay) == [[0, 1, 2, 3], [100, 101, 102]]
        found = observer.statistics()
        assert (found.steps_written, found.items_written, found.steps_dropped) == (7, 2, 0)
        assert (found.episodes, found.steps_cached) == (2, 0)


def test_e2_the_boundary_is_one_too_many():
    """Max 3: ValueError at the first boundary, then [100 101 B102]."""
    with new_replay() as replay, hr.AddEpisodeObserver(replay, "t", 3) as observer:
        *real, boundary = episode(3)
        for each in real:
            observer(each)
        with pytest.raises(ValueError, match=r"max_sequence_length=3 .*T \+ 1"):
            observer(boundary)
        assert observer.statistics().steps_cached == 0
        assert observer.statistics().steps_dropped == 4
        for each in episode(2, 100):
            observer(each)
        assert items(replay) == [[100, 101, 102]]


def test_e2_with_bypass_there_is_a_warning_and_the_same_item():
    with (
        new_replay() as replay,
        hr.AddEpisodeObserver(replay, "t", 3, bypass_partial_episodes=True) as observer,
    ):
        *real, boundary = episode(3)
        for each in real:
            observer(each)
        with pytest.warns(UserWarning, match=r"max_sequence_length=3 .*T \+ 1") as caught:
            assert observer(boundary) == []
        assert caught[0].filename == __file__
        for each in episode(2, 100):
            observer(each)
        assert items(replay) == [[100, 101, 102]]
        assert observer.statistics().steps_dropped == 4


@pytest.mark.parametrize("bypasses", [False, True])
def test_e2_the_error_comes_once_for_an_episode_and_the_next_is_whole(bypasses):
    with (
        new_replay() as replay,
        hr.AddEpisodeObserver(replay, "t", 3, bypass_partial_episodes=bypasses) as observer,
    ):
        for first in (0, 100):
            for place, each in enumerate(episode(7, first)):
                if place != 3:
                    assert observer(each) == []
                elif bypasses:
                    with pytest.warns(UserWarning, match="nothing of it is written"):
                        observer(each)
                else:
                    with pytest.raises(ValueError, match="nothing of it is written"):
                        observer(each)
            assert items(replay) == []
            assert observer.statistics().steps_dropped == 8 * (1 + (first > 0))
        for each in episode(1, 200):
            observer(each)
        assert items(replay) == [[200, 201]]
        assert observer.statistics().episodes == 3


def too_long(observer, frames):
    """Sends frames, one more than fit among them."""
    errors = 0
    for each in frames:
        try:
            observer(each)
        except ValueError:
            errors += 1
    assert errors == 1


@pytest.mark.parametrize("write", [True, False])
def test_e3_reset_while_the_rest_of_an_episode_is_dropped(write):
    with new_replay() as replay, hr.AddEpisodeObserver(replay, "t", 3) as observer:
        too_long(observer, unfinished(5))
        assert observer.reset(write) == []
        assert observer.statistics().steps_dropped == 5
        for each in episode(2, 10):
            observer(each)
        assert items(replay) == [[10, 11, 12]]


def test_e2_what_comes_while_dropping_is_still_checked():
    with new_replay() as replay, hr.AddEpisodeObserver(replay, "t", 3) as observer:
        too_long(observer, unfinished(5))
        before = observer.statistics()
        with pytest.raises(ValueError, match="expected MID"):
            observer(frame(5, (2, 0)))
        with pytest.raises(hr.SpecError, match="observation"):
            observer(frame(5)._replace(observation=np.zeros(3, np.float32)))
        assert observer.statistics() == before
        # The first frame of another episode ends it (O6).
        for each in episode(2, 10):
            observer(each)
        assert items(replay) == [[10, 11, 12]]
        observer.reset()


def test_a_frame_that_is_too_many_and_wrong_changes_nothing():
    with new_replay() as replay, hr.AddEpisodeObserver(replay, "t", 3) as observer:
        for each in unfinished(3):
            observer(each)
        with pytest.raises(hr.SpecError, match="observation"):
            observer(frame(3)._replace(observation=np.zeros(3, np.float32)))
        assert observer.statistics().steps_cached == 3
        observer.reset()
        assert items(replay) == [[0, 1, 2]]


def test_e3_reset():
    with new_replay() as replay, hr.AddEpisodeObserver(replay, "t", 4) as observer:
        for each in unfinished(3):
            observer(each)
        assert len(observer.reset(True)) == 1
        assert observer.reset(True) == []
        assert items(replay) == [[0, 1, 2]]
        for each in unfinished(2, 10):
            observer(each)
        assert observer.reset(False) == observer.reset(True) == []
        assert items(replay) == []
        assert observer.statistics().steps_dropped == 2
        assert observer.statistics().episodes == 2


def test_e4_a_first_frame_inside_an_unfinished_run():
    for bypasses, expected in ((False, [[0, 1], [10, 11]]), (True, [[10, 11]])):
        with (
            new_replay() as replay,
            hr.AddEpisodeObserver(replay, "t", 4, bypass_partial_episodes=bypasses) as observer,
        ):
            for each in [*unfinished(2), *episode(1, 10)]:
                observer(each)
            assert items(replay) == expected
            assert observer.statistics().steps_dropped == 2 * bypasses
    # Also where the run has as many frames as fit: the frame is no part of it.
    with new_replay() as replay, hr.AddEpisodeObserver(replay, "t", 2) as observer:
        for each in [*unfinished(2), *episode(1, 10)]:
            observer(each)
        assert items(replay) == [[0, 1], [10, 11]]


def test_e5_a_new_priority_is_that_of_later_items():
    with new_replay() as replay, hr.AddEpisodeObserver(replay, "t", 4, priority=2) as observer:
        for each in [*episode(1), *unfinished(2)]:
            observer(each)
        observer.update_priority(0.5)
        for bad, error in ((-1, ValueError), (float("nan"), ValueError), (None, TypeError)):
            with pytest.raises(error, match="priority"):
                observer.update_priority(bad)
        observer.reset()
        assert [replay.sample("t", 1).info.priorities[0] for _ in range(2)] == [2.0, 0.5]


def test_close_writes_an_unfinished_episode_and_keys_are_table_by_table():
    with new_replay("a", "b") as replay:
        with hr.AddEpisodeObserver(replay, ["b", "a"], 10) as observer:
            keys = [key for each in episode(2) for key in observer(each)]
            for each in unfinished(2, 10):
                observer(each)
        assert replay.statistics().store.rows == 5  # U5, once for both tables
        assert [int(replay.sample(table, 1).info.keys[0]) for table in ("b", "a")] == keys
        assert items(replay, "a") == items(replay, "b") == [[10, 11]]
        assert observer.statistics().items_written == 4


def test_m3_items_of_different_lengths_in_a_batch():
    with new_replay() as replay:
        with hr.AddEpisodeObserver(replay, "t", 10) as observer:
            for each in [*episode(1), *episode(3, 10)]:
                observer(each)
        batch = replay.sample("t", 2)
    assert batch.mask.tolist() == [[True, True, False, False], [True] * 4]
    assert batch.data.action.tolist() == [[0, 1, 0, 0], [10, 11, 12, 13]]
    assert batch.data.is_boundary().tolist() == [[False, True, True, True], [False, False, False, True]]


def test_a_largest_episode_above_the_capacity():
    """It is a bound, not a reservation: of episodes that are over only items hold something."""
    fifo = hr.selectors.Fifo()
    table = hr.Table("t", sampler=fifo, remover=fifo, max_size=2)
    with hr.Replay(SIGNATURE, [table], capacity=200) as replay:
        with hr.AddEpisodeObserver(replay, "t", 1_000_000) as observer:
            for first in range(0, 5000, 10):
                for each in episode(8, first):
                    observer(each)
                assert replay.sample("t", 1).data.action[0, 0] == max(0, first - 10)


# ---- against a model -------------------------------------------------------------------------------------------

steps = st.one_of(
    st.tuples(st.just("episode"), st.integers(0, 7)),
    st.tuples(st.just("unfinished"), st.integers(1, 7)),
    st.tuples(st.just("reset"), st.booleans()),
    st.tuples(st.just("reopen"), st.just(False)),
)


@settings(max_examples=100)
@given(most=st.integers(1, 6), bypasses=st.booleans(), history=st.lists(steps, max_size=14))
def test_any_history(most, bypasses, history):
    with new_replay() as replay:
        observer = hr.AddEpisodeObserver(replay, "t", most, bypass_partial_episodes=bypasses)
        run, is_open, expected = [], False, []
        dropped = number = 0
        for name, argument in history:
            if name in ("episode", "unfinished"):
                pairs = kinds(argument) if name == "episode" else kinds(argument + 1)[:argument]
                written_before = len(expected)
                if is_open:
                    # The episode before is interrupted.
                    pairs = [(0, 2), (2, 0)] if pairs == [(2, 0)] else pairs
                    if 0 < len(run) <= most:
                        expected += [] if bypasses else [run]
                        dropped += len(run) * bypasses
                run = []
                for pair in pairs:
                    number += 1
                    run.append(number)
                    with warnings.catch_warnings(record=True) as caught:
                        warnings.simplefilter("always")
                        try:
                            keys = observer(frame(number, pair))
                            raised = False
                        except ValueError:
                            keys, raised = [], True
                    assert raised == (len(run) == most + 1 and not bypasses)
                    assert len(caught) == (len(run) == most + 1 and bypasses)
                    ended = pair == (2, 0) and len(run) <= most
                    interrupted = len(run) == 1 and len(expected) > written_before
                    assert len(keys) == ended + interrupted
                is_open = pair != (2, 0)
                if len(run) > most:
                    dropped += len(run)
                elif not is_open:
                    expected.append(run)
                if not is_open:
                    run = []
            else:
                if name == "reset":
                    observer.reset(argument)
                else:
                    observer.close()
                    observer.open()
                if 0 < len(run) <= most:
                    if name == "reopen" or argument:
                        expected.append(run)
                    else:
                        dropped += len(run)
                run, is_open = [], False
            found = observer.statistics()
            assert found.steps_dropped == dropped
            assert found.steps_cached == (len(run) if len(run) <= most else 0)
        observer.reset(False)
        observer.close()
        assert items(replay) == expected
