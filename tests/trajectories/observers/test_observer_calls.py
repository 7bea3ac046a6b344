"""What both observers of frames have in common (trajectories O1, O3 to O11, P1, P2, U1 to U4)."""

import gc
import threading
import warnings
from collections import namedtuple

import numpy as np
import pytest

import headrace as hr
from headrace.tables.description.selectors import Fifo
from headrace.testing import FakeClock
from headrace.trajectories import lifecycle
from headrace.trajectories.observers.frame_reader import FrameReader


def frame(number=0, kind=(0, 1), **changes):
    parts = hr.Trajectory(
        step_type=np.int32(kind[0]),
        observation={"n": np.int64(number), "camera": np.zeros((2, 2), np.uint8)},
        action=np.float32(0.5),
        policy_info=(),
        next_step_type=np.int32(kind[1]),
        reward=np.float32(1),
        discount=np.float32(1),
    )
    return parts._replace(**changes)


SIGNATURE = hr.Signature.like(frame())
FIRST, MID, LAST, ONLY, BOUNDARY = (0, 1), (1, 1), (1, 2), (0, 2), (2, 0)
EPISODE = (FIRST, LAST, BOUNDARY)


def fifo(name="t", **settings):
    return hr.Table(name, sampler=Fifo(), remover=Fifo(), max_size=10_000, max_times_sampled=1, **settings)


def new_replay(*tables, signature=SIGNATURE, **settings):
    return hr.Replay(signature, tables or [fifo()], seed=0, **settings)


def windows_of_two(replay, table="t", **settings):
    return hr.AddTrajectoryObserver(replay, table, 2, **settings)


def episodes_of_three(replay, table="t", **settings):
    return hr.AddEpisodeObserver(replay, table, 3, **settings)


both = pytest.mark.parametrize("make", [windows_of_two, episodes_of_three])


def first_numbers(replay, table="t"):
    """The first frame of each item, in order."""
    return [
        int(np.ravel(replay.sample(table, 1).data.observation["n"])[0])
        for _ in range(len(replay.table(table)))
    ]


def write_episode(observer, first=0):
    return [observer(frame(first + t, kind)) for t, kind in enumerate(EPISODE)]


# ---- construction ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"sequence_length": 0}, ValueError, "sequence_length: .*>= 1, got 0"),
        ({"sequence_length": 2.0}, TypeError, "sequence_length: .*got 2.0"),
        ({"sequence_length": True}, TypeError, "sequence_length"),
        ({"stride_length": 0}, ValueError, "stride_length: .*got 0"),
        ({"stride_length": "1"}, TypeError, "stride_length"),
        ({"priority": -1}, ValueError, "priority: .*-1"),
        ({"priority": float("nan")}, ValueError, "priority: .*nan"),
        ({"priority": float("inf")}, ValueError, "priority"),
        ({"priority": "high"}, TypeError, "priority: .*'high'"),
        ({"table_name": "other"}, KeyError, "no table 'other'; there are 't', 'u'"),
        ({"table_name": ["t", "other"]}, KeyError, "'t', 'u'"),
        ({"table_name": []}, ValueError, "table_name: .*none"),
        ({"table_name": ["t", "t"]}, ValueError, "table_name: .*different"),
        ({"py_client": "localhost:8000"}, TypeError, "^py_client: expected a Replay.*got str"),
        ({"table_name": 3}, TypeError, "table_name"),
        ({"table_name": ["t", None]}, TypeError, "table_name"),
        ({"tile_end_of_episodes": True}, ValueError, "pad_end_of_episodes=True"),
        ({"tile_end_of_episodes": 1}, TypeError, "tile_end_of_episodes"),
        ({"pad_end_of_episodes": None}, TypeError, "pad_end_of_episodes"),
        ({"timeout": -1}, ValueError, "timeout: .*-1"),
        ({"timeout": "soon"}, TypeError, "timeout"),
    ],
)
def test_o1_arguments_of_the_trajectory_observer(arguments, error, says):
    with new_replay(fifo("t"), fifo("u")) as replay:
        arguments = {"py_client": replay, "table_name": "t", "sequence_length": 2} | arguments
        with pytest.raises(error, match=says):
            hr.AddTrajectoryObserver(**arguments)
        assert replay.statistics().store.pages == 0
        # The replay serves on, and so does a good observer.
        with hr.AddTrajectoryObserver(replay, "t", 2) as observer:
            assert len(write_episode(observer)[1]) == 1


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"max_sequence_length": 0}, ValueError, "max_sequence_length: .*got 0"),
        ({"max_sequence_length": 1.5}, TypeError, "max_sequence_length"),
        ({"bypass_partial_episodes": None}, TypeError, "bypass_partial_episodes"),
        ({"py_client": None}, TypeError, "^py_client: expected a Replay.*got NoneType"),
        ({"priority": -0.5}, ValueError, "priority: .*-0.5"),
        ({"table_name": ["a"]}, KeyError, "there are 't'"),
        ({"timeout": float("nan")}, ValueError, "timeout"),
    ],
)
def test_e1_arguments_of_the_episode_observer(arguments, error, says):
    with new_replay() as replay:
        with pytest.raises(error, match=says):
            hr.AddEpisodeObserver(
                **({"py_client": replay, "table_name": "t", "max_sequence_length": 2} | arguments)
            )


@both
@pytest.mark.parametrize(
    ("example", "says"),
    [
        ({"observation": 0.0}, "a signature of frames"),
        (0.0, "a signature of frames"),
        (tuple(frame()), "a signature of frames"),
        (frame(step_type=np.zeros(1, np.int32)), r"step_type: .*int32\[1\]"),
        (frame(next_step_type={"a": 1}), "next_step_type: .*container"),
        (frame(step_type=1.0), "step_type: .*float64"),
    ],
)
def test_o1_the_signature_is_that_of_a_frame(make, example, says):
    with new_replay(signature=hr.Signature.like(example)) as replay, pytest.raises(hr.SpecError, match=says):
        make(replay)


def test_o1_pads_without_tiles_and_all_keywords():
    with new_replay() as replay:
        observer = hr.AddTrajectoryObserver(
            py_client=replay,
            table_name="t",
            sequence_length=np.int64(2),
            stride_length=1,
            priority=np.float32(2),
            pad_end_of_episodes=True,
            tile_end_of_episodes=False,
            timeout=None,
        )
        # Open, and nothing is written yet.
        assert replay.statistics().store.pages == 0
        write_episode(observer)
        assert replay.sample("t", 1).info.priorities[0] == 2.0
        observer.close()
        hr.AddEpisodeObserver(
            py_client=replay,
            table_name=("t",),
            max_sequence_length=3,
            priority=0,
            bypass_partial_episodes=True,
            timeout=1,
        ).close()


def test_a_signature_that_came_over_a_wire():
    wire = hr.Signature.from_json(SIGNATURE.to_json())
    with new_replay(signature=wire) as replay, windows_of_two(replay) as observer:
        write_episode(observer)
        assert isinstance(replay.sample("t", 1).data, hr.Trajectory)


# ---- frames ----------------------------------------------------------------------------------------------------

Foreign = namedtuple("Foreign", hr.Trajectory._fields)


@both
@pytest.mark.parametrize(
    "form",
    [
        lambda each: each,
        lambda each: Foreign(*each),
        SIGNATURE.flatten,
        lambda each: list(SIGNATURE.flatten(each).values()),
        lambda each: tuple(SIGNATURE.flatten(each).values()),
        lambda each: each._replace(
            step_type=hr.StepType(int(each.step_type)), next_step_type=int(each.next_step_type)
        ),
        lambda each: each._replace(step_type=np.array(each.step_type), discount=1, reward=0.5),
        lambda each: each._replace(observation=dict(reversed(each.observation.items()))),
    ],
    ids=["frame", "foreign", "columns", "list", "tuple", "enum", "arrays", "reordered"],
)
def test_o4_accepted_forms(make, form):
    with new_replay() as replay, make(replay) as observer:
        for t, kind in enumerate(EPISODE):
            observer(form(frame(t, kind)))
        batch = replay.sample("t", 1).data
        assert batch.step_type.tolist()[0][:2] == [0, 1]
        assert batch.next_step_type.dtype == np.int32
        assert batch.observation["n"].tolist()[0][:2] == [0, 1]


@both
@pytest.mark.parametrize(
    ("bad", "path"),
    [
        (frame(1, LAST, action=np.zeros(2, np.float32)), "action"),
        (frame(1, LAST, action="left"), "action"),
        (frame(1, LAST, action=1e300), "action"),
        (frame(1, LAST, action=None), "action"),
        (frame(1, LAST, action=[[1.0], [1.0, 2.0]]), "action"),
        (frame(1, LAST, observation={"n": 0.5, "camera": np.zeros((2, 2), np.uint8)}), "observation/n"),
        (frame(1, LAST, observation={"n": 1, "camera": np.zeros((2, 3), np.uint8)}), "observation/camera"),
        (frame(1, LAST, observation={"n": 1}), "observation/camera"),
        (frame(1, LAST, observation={"n": 1, "camera": 0, "more": 0}), "observation/more"),
        (frame(1, LAST, observation=np.zeros(3)), "observation"),
        (frame(1, LAST, policy_info={"log_prob": 0.5}), "policy_info"),
        (frame(1, LAST, policy_info=(0.5,)), "policy_info"),
        (frame(1, LAST, step_type="mid"), "step_type"),
        (frame(1, LAST, step_type=1.0), "step_type"),
        (frame(1, LAST, next_step_type=[2]), "next_step_type"),
        (frame(1, LAST, next_step_type=None), "next_step_type"),
        ({"observation/n": 1}, "missing"),
        ({**SIGNATURE.flatten(frame(1, LAST)), "extra": 1}, "extra"),
        (list(SIGNATURE.flatten(frame(1, LAST)).values())[:-1], "expected 7 leaves.*got 6"),
        ((), "got 0"),
        (None, "Trajectory"),
        (3, "Trajectory"),
    ],
)
def test_o4_a_frame_that_does_not_fit_changes_nothing(make, bad, path):
    with new_replay() as replay, make(replay) as observer:
        observer(frame(0, FIRST))
        before = observer.statistics(), replay.statistics()
        with pytest.raises(hr.SpecError, match=path):
            observer(bad)
        assert (observer.statistics(), replay.statistics()) == before
        observer(frame(1, LAST))
        observer(frame(2, BOUNDARY))
        assert first_numbers(replay) == ([0, 1] if make is windows_of_two else [0])


def batch_of(count, each):
    columns = {name: np.stack([value] * count) for name, value in SIGNATURE.flatten(each).items()}
    return SIGNATURE.unflatten(columns)


@both
@pytest.mark.parametrize("count", [1, 3])
def test_o5_batches_are_refused_before_anything_is_appended(make, count):
    with new_replay() as replay, make(replay) as observer:
        for bad in (
            batch_of(count, frame()),
            SIGNATURE.flatten(batch_of(count, frame())),
            list(SIGNATURE.flatten(batch_of(count, frame())).values()),
            frame(observation={"n": 0, "camera": np.zeros((count, 2, 2), np.uint8)}),
            frame(reward=[0.0] * count),
        ):
            with pytest.raises(
                hr.SpecError, match="Batched trajectories are not supported.*lanes.*hr.StepWriter"
            ):
                observer(bad)
        assert observer.statistics().steps_written == replay.statistics().store.rows == 0
        assert write_episode(observer)[2]


@both
@pytest.mark.parametrize("kind", [(2, 1), (1, 0), (2, 2), (0, 0), (2, 3), (-1, 1), (7, 7)])
def test_o6_a_pair_of_no_frame(make, kind):
    with new_replay() as replay, make(replay) as observer:
        for _ in range(2):
            before = observer.statistics()
            with pytest.raises(ValueError, match=rf"step_type.*got \({kind[0]}, {kind[1]}\)"):
                observer(frame(0, kind))
            assert observer.statistics() == before
            observer(frame(0, FIRST))
            observer.reset(False)


@both
@pytest.mark.parametrize(
    ("before", "wrong", "right"),
    [
        ([FIRST], BOUNDARY, MID),
        ([FIRST, MID], BOUNDARY, LAST),
        ([MID], BOUNDARY, MID),
        ([LAST], MID, BOUNDARY),
        ([ONLY], LAST, BOUNDARY),
        ([ONLY], MID, BOUNDARY),
    ],
)
def test_o6_frames_come_in_their_order(make, before, wrong, right):
    with new_replay() as replay:
        observer = make(replay)
        for t, kind in enumerate(before):
            observer(frame(t, kind))
        state = observer.statistics(), replay.statistics()
        with pytest.raises(ValueError, match="step_type: expected .*got"):
            observer(frame(9, wrong))
        assert (observer.statistics(), replay.statistics()) == state
        observer(frame(len(before), right))
        assert observer.statistics().steps_written == len(before) + 1
        observer.reset(False)


@both
def test_o6_a_bad_first_frame_does_not_end_the_run(make):
    with new_replay() as replay:
        observer = make(replay)
        observer(frame(0, FIRST))
        with pytest.raises(hr.SpecError, match="action"):
            observer(frame(10, FIRST, action="left"))
        assert observer.statistics().steps_cached == 1
        observer(frame(1, LAST))
        observer(frame(2, BOUNDARY))
        assert first_numbers(replay)[0] == 0
        observer.close()


@both
@pytest.mark.parametrize("kind", [FIRST, MID, LAST, ONLY, BOUNDARY])
def test_o6_a_run_may_begin_with_any_frame(make, kind):
    with new_replay() as replay:
        observer = make(replay)
        write_episode(observer)
        observer(frame(10, kind))
        assert observer.statistics().steps_written == 4
        observer.reset(False)
        observer(frame(20, kind))
        observer.reset(False)
        observer.close()


# ---- opening and closing ---------------------------------------------------------------------------------------


@both
def test_o8_closed_and_opened_again(make):
    with new_replay() as replay:
        observer = make(replay)
        observer.open()
        write_episode(observer)
        observer.close()
        observer.close()
        for call in (
            lambda: observer(frame()),
            observer.flush,
            observer.reset,
            lambda: observer.reset(False),
        ):
            with pytest.raises(hr.Closed, match=r"open\(\)"):
                call()
        observer.open()
        observer.open()
        write_episode(observer, 10)
        assert observer.statistics().episodes == 2
        assert observer.statistics().steps_written == 6
        observer.close()
        assert {0, 10} <= set(first_numbers(replay))


@both
def test_o8_leaving_it_through_an_error_makes_the_same_items_and_waits_for_none(make):
    with new_replay(hr.Table.queue("t", 1)) as replay:
        with pytest.raises(RuntimeError), pytest.warns(ResourceWarning, match="pending"):  # noqa: PT012, PT031
            with make(replay) as observer:
                for number in range(4):
                    write_episode(observer, 10 * number)
                observer(frame(100, FIRST))
                observer(frame(101, MID))
                raise RuntimeError("mine")
        with pytest.raises(hr.Closed):
            observer(frame())
        found = [first_numbers(replay)[0] for _ in range(replay.table("t").statistics().pending_inserts + 1)]
        assert found[-1] == 100
        assert len(found) == observer.statistics().items_written


@both
def test_o8_a_full_store_replaces_no_exception(make, monkeypatch):
    def refuse(writer):
        raise hr.StoreFull("the store is full")

    with new_replay() as replay:
        with pytest.raises(KeyError, match="mine") as caught:  # noqa: PT012
            with make(replay) as observer:
                observer(frame(100, FIRST))
                observer(frame(101, MID))
                monkeypatch.setattr(observer, "_end_run", refuse)
                raise KeyError("mine")
        (note,) = caught.value.__notes__
        assert "the store is full" in note
        with pytest.raises(hr.Closed):
            observer(frame())


@both
def test_a_closed_replay(make):
    replay = new_replay()
    observer = make(replay)
    observer(frame(0, FIRST))
    replay.close()
    for call in (
        lambda: observer(frame(1, LAST)),
        lambda: observer(frame(1, FIRST)),
        observer.reset,
        observer.close,
    ):
        with pytest.raises(hr.Closed, match="the replay is closed"):
            call()
    observer.close()
    with pytest.raises(hr.Closed):
        observer.open()


# ---- waiting ---------------------------------------------------------------------------------------------------


def full_replay(monkeypatch, observer_settings, max_pending=2, make=windows_of_two, **settings):
    """A queue of one item with so many waiting before it that the next call that makes one waits."""
    monkeypatch.setattr(lifecycle, "MAX_PENDING", max_pending)
    replay = new_replay(hr.Table.queue("t", 1), **settings)
    observer = make(replay, **observer_settings)
    observer(frame(0, FIRST))
    number = 0
    while replay.table("t").statistics().pending_inserts < max_pending:
        number += 1
        observer(frame(number, MID))
    return replay, observer, number + 1


def test_o10_a_call_waits_only_when_too_many_items_are_pending(monkeypatch):
    replay, observer, number = full_replay(monkeypatch, {"timeout": 0})
    with replay:
        assert replay.table("t").statistics().pending_inserts == 2
        with pytest.raises(hr.DeadlineExceeded, match="3 for table 't'.*do not send it again") as caught:
            observer(frame(number, MID))
        assert caught.value.pending == 3
        # The frame was taken: the next one follows it, and its items enter by themselves in their order.
        assert observer.statistics().steps_written == number + 1
        for expected in range(4):
            assert first_numbers(replay) == [expected]
        observer.flush(0)
        assert len(observer(frame(number + 1, MID))) == 2  # with the key that was not told
        assert first_numbers(replay) == [4]
        observer.close()


def test_o10_a_frame_that_makes_no_item_does_not_wait(monkeypatch):
    replay, observer, number = full_replay(monkeypatch, {"timeout": 0, "stride_length": 3})
    with replay:
        assert observer(frame(number, MID)) == []
        with pytest.raises(hr.DeadlineExceeded), pytest.warns(UserWarning, match="3 of 9 frames"):
            observer.close()
        assert observer(frame(100, BOUNDARY)) == []  # It is still open, with an empty run.
        for expected in range(0, 9, 3):
            assert first_numbers(replay) == [expected]
        observer.close()


def test_o10_the_timeout_is_that_of_the_clock_and_a_sample_ends_the_wait(monkeypatch):
    clock = FakeClock()
    replay, observer, number = full_replay(monkeypatch, {"timeout": 5.0}, clock=clock)
    results = []

    def call(kind):
        try:
            results.append(observer(frame(number + len(results), kind)))
        except hr.DeadlineExceeded as error:
            results.append(error)

    with replay:
        late = threading.Thread(target=call, args=[MID])
        late.start()
        clock.wait_for_waiters(1)
        # U2: meanwhile it is in use.
        for other in (lambda: observer(frame()), observer.flush, observer.reset, observer.close):
            with pytest.raises(ValueError, match="in use"):
                other()
        assert observer.statistics().items_written == number
        while late.is_alive():
            clock.advance(5.0)
            late.join(0.01)
        assert isinstance(results[0], hr.DeadlineExceeded)
        served = threading.Thread(target=call, args=[LAST])
        served.start()
        clock.wait_for_waiters(1)
        assert [replay.sample("t", 1) for _ in range(2)]
        served.join()
        assert len(results[1]) == 2
        replay.reset("t")
        observer.reset(False)
    with pytest.raises(hr.Closed):
        observer.close()


def test_o10_the_end_of_an_episode_waits_once_and_loses_nothing(monkeypatch):
    """The frames of the end make many items at once, in every table."""
    monkeypatch.setattr(lifecycle, "MAX_PENDING", 3)
    with new_replay(hr.Table.queue("t", 1), fifo("u")) as replay:
        observer = hr.AddTrajectoryObserver(replay, ["t", "u"], 4, pad_end_of_episodes=True, timeout=0)
        keys = []
        for number, kind in enumerate([FIRST, MID, MID, MID, LAST, BOUNDARY, FIRST, LAST, BOUNDARY]):
            try:
                keys += observer(frame(number, kind))
            except hr.DeadlineExceeded:
                assert kind == BOUNDARY
        assert first_numbers(replay, "u") == list(range(9))
        with pytest.raises(hr.DeadlineExceeded):
            observer.flush(timeout=0)
        found = [first_numbers(replay)[0] for _ in range(9)]
        assert found == list(range(9))
        assert observer.statistics().items_written == 18
        keys += observer.reset()
        assert len(set(keys)) == 18
        observer.close()


def test_o10_an_interrupted_run_and_full_tables(monkeypatch):
    replay, observer, number = full_replay(monkeypatch, {"timeout": 0, "pad_end_of_episodes": True})
    with replay:
        with pytest.raises(hr.DeadlineExceeded, match="do not send it again"):
            observer(frame(100, FIRST))
        found = [first_numbers(replay)[0] for _ in range(number)]
        assert found == list(range(number))
        observer(frame(101, LAST))
        assert first_numbers(replay) == [100]
        observer.reset(False)
        observer.close()


def test_o10_a_thousand_items_may_wait():
    with new_replay(hr.Table.queue("t", 1)) as replay:
        observer = hr.AddTrajectoryObserver(replay, "t", 1, timeout=0)
        observer(frame(0, FIRST))
        for number in range(1, 1001):
            observer(frame(number, MID))
        with pytest.raises(hr.DeadlineExceeded):
            observer(frame(1001, MID))
        with pytest.raises(hr.DeadlineExceeded, match="1001"):
            observer.flush(timeout=0)
        replay.delete("t", observer_keys(replay))
        observer.reset()
        with pytest.raises(hr.DeadlineExceeded):
            observer.close()
        replay.table("t").configure(max_size=2000, rate_limiter=hr.rate_limiters.MinSize(1))
        observer.close()
        assert first_numbers(replay) == list(range(1, 1002))


def observer_keys(replay):
    """The key of the oldest item, which nothing but a sample tells."""
    return replay.sample("t", 1).info.keys


def test_p1_a_full_store_refuses_the_frame_and_the_observer_goes_on():
    signature = SIGNATURE
    with hr.Replay(signature, [fifo()], capacity=64) as replay:
        observer = hr.AddTrajectoryObserver(replay, "t", 2)
        observer(frame(0, FIRST))
        number = 1
        with pytest.raises(hr.StoreFull):  # noqa: PT012
            while True:
                observer(frame(number, MID))
                number += 1
        assert observer.statistics().steps_written == observer.statistics().steps_cached == number
        replay.reset("t")
        assert len(observer(frame(number, LAST))) == 1
        observer(frame(number + 1, BOUNDARY))
        assert first_numbers(replay) == [number - 1, number]
        observer.close()


@both
def test_p1_a_full_store_and_a_frame_that_interrupts_an_episode(make):
    """Nothing changed: the run that it would end goes on."""
    with hr.Replay(SIGNATURE, [fifo()], capacity=64) as replay:
        observer = (
            hr.AddTrajectoryObserver(replay, "t", 2)
            if make is windows_of_two
            else hr.AddEpisodeObserver(replay, "t", 999)
        )
        observer(frame(0, FIRST))
        number = 1
        with pytest.raises(hr.StoreFull):  # noqa: PT012
            while True:
                observer(frame(number, MID))
                number += 1
        before = observer.statistics()
        with pytest.raises(hr.StoreFull):
            observer(frame(number, FIRST))
        assert observer.statistics() == before
        observer.reset(False)
        replay.reset("t")
        assert len(write_episode(observer, 1000)[2]) == 1
        observer.close()


# ---- users' expectations ---------------------------------------------------------------------------------------


@both
def test_u3_garbage_collected_with_unwritten_frames(make):
    with new_replay() as replay:
        observer = make(replay)
        observer(frame(0, FIRST))
        with pytest.warns(ResourceWarning, match="1 of the 1 frames"):  # noqa: PT031
            del observer
            gc.collect()
        # Nothing to warn of: closed, or between two episodes.
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            observer = make(replay)
            write_episode(observer)
            del observer
            gc.collect()


def test_u3_frames_that_further_windows_would_hold():
    with new_replay() as replay:
        observer = hr.AddTrajectoryObserver(replay, "t", 3, pad_end_of_episodes=True)
        for t, kind in enumerate([FIRST, MID, MID, MID]):
            observer(frame(t, kind))
        with pytest.warns(ResourceWarning, match="2 of the 4 frames"):  # noqa: PT031
            del observer
            gc.collect()


def test_u4_repr():
    with new_replay(fifo("a"), fifo("b")) as replay:
        observer = hr.AddTrajectoryObserver(replay, ["a", "b"], 5, stride_length=2)
        assert repr(observer) == (
            "<AddTrajectoryObserver for 'a', 'b': sequence_length=5, stride_length=2, pad_end_of_episodes=False, "
            "tile_end_of_episodes=False, open, 0 frames cached>"
        )
        observer.close()
        assert repr(observer).endswith("closed>")
        with hr.AddEpisodeObserver(replay, "b", 7) as episodes:
            assert "'b': max_sequence_length=7" in repr(episodes)


def test_u2_one_call_at_a_time_from_within():
    """A call from a signal handler or a warning's hook is refused, not mixed in."""

    class Sneaky(dict):
        def keys(self):
            observer(frame())
            return super().keys()

    with new_replay() as replay, windows_of_two(replay) as observer:
        with pytest.raises(ValueError, match="in use"):
            observer(Sneaky(SIGNATURE.flatten(frame())))
        assert observer.statistics().steps_written == 0
        write_episode(observer)


def test_the_reader_alone():
    reader = FrameReader(SIGNATURE)
    columns = reader.read(frame(3, LAST))
    assert columns.keys() == SIGNATURE.columns.keys()
    assert reader.step_types(columns) == (1, 2)
    reader.check(columns)
