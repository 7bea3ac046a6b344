"""Synchronous and asynchronous samplers (views-rollouts R13)."""

import itertools
import threading
from typing import Any

import numpy as np
import pytest
from counting_rollouts import Recurrent, by_step, counters, worker
from interrupted_calls import interrupt_call
from interrupts import Interrupt

import headrace as hr
from headrace.rollouts import AsyncSampler, SyncSampler
from headrace.rollouts.samplers import StopFlag
from headrace.testing.envs import CounterEnv


@pytest.mark.parametrize("mode", ["truncate_episodes", "complete_episodes"])
def test_both_samplers_return_the_same_rows(mode: str):
    def sampled(sample_async: bool) -> Any:
        with worker(
            counters(4, 3), Recurrent(), num_envs=2, batch_mode=mode, sample_async=sample_async
        ) as made:
            assert isinstance(made.sampler, AsyncSampler if sample_async else SyncSampler)
            return [made.sample() for _ in range(4)]

    for one, other in zip(sampled(False), sampled(True), strict=True):
        assert set(one) == set(other)
        for name in one:
            np.testing.assert_array_equal(one[name], other[name])


def test_the_thread_is_one_finished_batch_ahead():
    made, may_make = [], threading.Semaphore(0)

    def collect() -> int:
        made.append(len(made))
        may_make.release()
        return made[-1]

    sampler = AsyncSampler(collect, StopFlag())
    try:
        assert sampler.get_data() == 0
        for _ in range(2):
            assert may_make.acquire(timeout=10)
        # The second batch waits, so nothing more is made.
        assert not may_make.acquire(timeout=0.05)
        assert sampler.get_data() == 1
    finally:
        sampler.close()
    assert made in ([0, 1], [0, 1, 2])


def test_an_error_of_the_thread_is_raised_and_the_next_batch_follows():
    class Failing(CounterEnv):
        def step(self, action):
            if (self.episode, self.step_count) == (1, 1):
                raise ArithmeticError("the arm broke")
            return super().step(action)

    with worker(lambda: Failing(3), sample_async=True, rollout_fragment_length=3) as made:
        assert made.sample()["t"].tolist() == [0, 1, 2]
        with pytest.raises(ArithmeticError, match="the arm broke"):
            made.sample()
        batch = made.sample()
        assert batch["t"].tolist() == [0, 1, 2]
        assert batch["observation"][0].tolist() == [0, 2, 0]


def test_close_ends_the_thread_in_the_middle_of_an_episode_without_end():
    stepping = threading.Event()

    def policy(seen):
        stepping.set()
        return by_step(seen)

    made = worker(counters(10**9), policy, sample_async=True, batch_mode="complete_episodes")
    failed: list[BaseException] = []

    def sample() -> None:
        try:
            made.sample()
        except hr.Closed as error:
            failed.append(error)

    waiting = threading.Thread(target=sample)
    waiting.start()
    assert stepping.wait(timeout=10)
    made.close()
    waiting.join(timeout=10)
    assert len(failed) == 1
    assert not [thread for thread in threading.enumerate() if thread.name == "headrace-sampler"]
    assert made.envs[0].closed == 1


def test_a_worker_that_was_never_used_has_no_thread():
    made = worker(counters(3), sample_async=True)
    made.close()
    with pytest.raises(hr.Closed):
        made.sample()
    assert made.sampler._thread is None


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_ctrl_c_loses_no_batch(is_first: bool, fails: bool):
    """R13: at whichever place of a call it comes, the next call returns the batch, or raises the error in its place."""
    for point in itertools.count():
        numbers = itertools.count()

        def collect(numbers: Any = numbers) -> int:
            number = next(numbers)
            if fails and number == 1:
                raise ArithmeticError
            return number

        sampler, found = AsyncSampler(collect, StopFlag()), []

        def take(sampler: AsyncSampler = sampler, found: list[Any] = found) -> None:
            try:
                found.append(sampler.get_data())
            except ArithmeticError:
                found.append(1)

        try:
            for _ in range(0 if is_first else 1):
                take()
            place = interrupt_call(point, take, within=("rollouts/samplers.py",))
            while len(found) < 4:
                take()
        finally:
            sampler.close()
        assert found == [0, 1, 2, 3], place
        for thread in threading.enumerate():
            if thread.name == "headrace-sampler":  # A second one ends at once.
                thread.join(10)
        assert not [thread for thread in threading.enumerate() if thread.name == "headrace-sampler"]
        if place is None:
            break
    assert point > 5


@pytest.mark.parametrize("sample_async", [False, True])
def test_ctrl_c_in_on_sample_end_loses_no_batch(sample_async: bool):
    """R2, R13, C1: the next call returns the batch, and calls the callback with it."""

    class Callbacks:
        calls = 0

        def on_sample_end(self, *, worker: Any, samples: Any) -> None:
            self.calls += 1
            given.append(samples["t"].tolist())
            if self.calls == 2:
                raise KeyboardInterrupt

    given: list[list[int]] = []
    with worker(
        counters(10), sample_async=sample_async, rollout_fragment_length=3, callbacks=Callbacks
    ) as made:
        assert made.sample()["t"].tolist() == [0, 1, 2]
        with pytest.raises(KeyboardInterrupt):
            made.sample()
        assert made.sample()["t"].tolist() == [3, 4, 5]
        assert made.sample()["t"].tolist() == [6, 7, 8]
    assert given == [[0, 1, 2], [3, 4, 5], [3, 4, 5], [6, 7, 8]]


@pytest.mark.parametrize("sample_async", [False, True])
def test_ctrl_c_beside_on_sample_end_loses_no_batch(sample_async: bool):
    """R2, R13: at whichever moment of a call of `sample` it comes, outside of the steps of the environments."""

    class Callbacks:
        def on_sample_end(self, *, worker: Any, samples: Any) -> None:
            pass

    for moment in itertools.count(1):
        with worker(
            counters(99), sample_async=sample_async, rollout_fragment_length=3, callbacks=Callbacks
        ) as made:
            found = [made.sample()]
            interrupt = Interrupt(moment, functions=("sample", "get_data"), folder="rollouts")
            try:
                with interrupt:
                    found.append(made.sample())
            except KeyboardInterrupt:
                pass
            while len(found) < 3:
                found.append(made.sample())
        assert [batch["t"][0] for batch in found] == [0, 3, 6], moment
        if interrupt._seen < moment:
            break
    assert moment > 1
