"""Sizes of collectors that no counter or store holds."""

import sys

import cloudpickle
import pytest

import headrace as hr
from headrace.testing import CounterEnv

cloudpickle.register_pickle_by_value(sys.modules[__name__])

KINDS = [hr.Collector, hr.AsyncCollector]


def never(*_):
    raise AssertionError("was built before the arguments were checked")


@pytest.fixture
def no_process(monkeypatch):
    monkeypatch.setattr("headrace.collectors.multi.starting.WorkerProcess", never)


SIZES = [
    *("frames_per_batch", "total_frames", "init_random_frames", "max_frames_per_traj", "num_envs"),
    *("num_workers", "max_restarts", "num_threads", "num_sub_threads", "max_staleness"),
]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("bits", [64, 100_000])
def test_numbers_that_no_counter_holds(size, bits, no_process):
    # CR13, CT: counters are 64 bits wide. A number that Python does not print is told as well.
    told = rf"{size}: expected an int below 2\*\*63, got one of {bits} bits"
    arguments = {"frames_per_batch": 5, size: 1 << bits - 1}
    if size in hr.collectors.arguments.CollectorArguments.__annotations__:
        with pytest.raises(ValueError, match=told):
            hr.Collector(never, **arguments)
    with pytest.raises(ValueError, match=told):
        hr.MultiCollector(never, **{"sync": False, **arguments})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("told", "arguments"),
    [
        ("got 1099511627777", {"frames_per_batch": 2**40}),
        ("got 200000000", {"frames_per_batch": 5, "num_envs": 10**8}),
    ],
)
def test_rollouts_that_no_store_holds_are_refused_before_anything_is_built(kind, told, arguments, no_process):
    # CR13
    with pytest.raises(
        ValueError, match=f"frames_per_batch: expected rollouts of at most 178956970 rows.*{told}"
    ):
        kind(never, **arguments)


def test_the_rollouts_of_workers_and_their_number(no_process):
    # CR2, CR13
    told = "frames_per_batch: expected rollouts of at most 178956970 rows"
    for frames in ([4, 2**40], 2**40):
        with pytest.raises(ValueError, match=told):
            hr.MultiCollector(never, sync=True, num_workers=2, frames_per_batch=frames)
    with pytest.raises(
        ValueError, match=r"frames_per_batch: expected an int below 2\*\*63, got one of 64 bits"
    ):
        hr.MultiCollector(never, sync=True, num_workers=2, frames_per_batch=[4, 2**63])
    with pytest.raises(
        ValueError, match="num_workers: expected a positive int up to 4194304, got 1099511627776"
    ):
        hr.MultiCollector(never, sync=True, num_workers=2**40, frames_per_batch=4)


def test_workers_that_fill_a_replay_may_have_longer_rollouts(make_replay):
    # CF4: no rollout is held as a whole there.
    replay = make_replay(hr.collectors.signature(lambda: CounterEnv(3)))
    with hr.AsyncCollector(lambda: CounterEnv(3), frames_per_batch=2**62, replay_buffer=replay) as collector:
        collector.start()
        assert len(replay.sample("t", 4, timeout=40).data["reward"]) == 4


def test_seconds_that_no_clock_counts():
    # CB10
    with hr.Collector(lambda: CounterEnv(3), frames_per_batch=4) as collector:
        with pytest.raises(ValueError, match="timeout: expected seconds or None, got an int of 5001 bits"):
            collector.next(timeout=1 << 5000)


@pytest.mark.parametrize("number", ["num_rollouts", "warmup_rollouts"])
def test_profiles_of_more_rollouts_than_a_counter_holds(number):
    # CH2
    with hr.Collector(lambda: CounterEnv(3), frames_per_batch=4) as collector:
        with pytest.raises(ValueError, match=rf"{number}: expected an int below 2\*\*63, got one of 71 bits"):
            collector.enable_profile(**{"num_rollouts": 5, number: 1 << 70})
