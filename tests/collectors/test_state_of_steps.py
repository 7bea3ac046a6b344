"""States of a collector in this process, taken in the middle of a rollout: at any step, and again after that."""

import itertools
import pickle
import threading
from contextlib import suppress

import numpy as np
import pytest

import headrace as hr
from headrace.testing import CounterEnv
from tests.collectors.test_state import CASES as STATE_CASES
from tests.collectors.test_state import RandomWalk, Recurrent, assert_equal, copied

TOTALS = ("frames", "batches", "episodes", "frames_discarded")


class Extra:
    """A policy that adds a column, and is not asked while actions are random."""

    def __call__(self, observation):
        return np.tanh(observation[:, :1]).astype(np.float32), {"sum": observation.sum(1)}


CASES = STATE_CASES | {
    "truncated": (RandomWalk, Recurrent, {"num_envs": 2, "set_truncated": True}),
    "reset each": (RandomWalk, lambda: None, {"num_envs": 2, "reset_at_each_iter": True}),
    "waiting": (
        RandomWalk,
        lambda: None,
        {"num_envs": 2, "reset_at_each_iter": True, "reset_when_done": False, "frames_per_batch": 40},
    ),
    "extra after random": (RandomWalk, Extra, {"num_envs": 2, "init_random_frames": 12}),
}


def one_step(collector):
    """Returns the batch that is complete with the next step, or None."""
    with suppress(hr.DeadlineExceeded):
        return collector.next(timeout=0)


@pytest.mark.parametrize("case", CASES)
def test_a_state_at_every_step_is_loaded_by_another_collector(case, take):
    # CQ3: bit for bit as if never stopped.
    env, make_policy, options = CASES[case]
    options = {"frames_per_batch": 12, "seed": 3, **options}

    def make():
        return hr.Collector(env, make_policy(), **options)

    with make() as collector:
        expected = take(collector, 3)
        statistics = collector.statistics()
    found, collector = [], make()
    while len(found) < 3:
        if (batch := one_step(collector)) is not None:
            found.append(batch)
        state = copied(collector.state_dict())
        collector.shutdown()
        collector = make()
        collector.load_state_dict(state)
        assert_equal_states(state, collector.state_dict())
    again = collector.statistics()
    collector.shutdown()
    assert_equal(expected, found)
    assert [getattr(again, name) for name in TOTALS] == [getattr(statistics, name) for name in TOTALS]


def assert_equal_states(state, other):
    """A state that is taken before the next step is the one that was loaded."""
    assert pickle.dumps(state["rollout"]) == pickle.dumps(copied(other["rollout"]))


def test_a_state_leaves_the_rollout_as_it_is(take):
    # CQ3: for the collector that is saved, too.
    options = {"frames_per_batch": 12, "num_envs": 2, "seed": 3}
    with hr.Collector(RandomWalk, Recurrent(), **options) as collector:
        expected = take(collector, 3)
    seen = []
    with hr.Collector(RandomWalk, Recurrent(), **options) as collector:
        collector.set_post_collect_hook(lambda batch: seen.append(np.array(batch["observation"])))
        found = []
        while len(found) < 3:
            if (batch := one_step(collector)) is not None:
                found.append(batch)
            collector.state_dict()
    assert_equal(expected, found)
    np.testing.assert_array_equal(seen, [batch["observation"] for batch in expected])


def test_environments_without_a_state_begin_anew_within_the_rollout(take):
    # CQ3, CB5: as with workers.
    with hr.Collector(lambda: CounterEnv(100), frames_per_batch=8, seed=3) as collector:
        take(collector, 1)
        for _ in range(3):
            assert one_step(collector) is None
        state = copied(collector.state_dict())
        (expected,) = take(collector, 1)
    state["loop"]["stepper"]["environments"] = [None]
    with hr.Collector(lambda: CounterEnv(100), frames_per_batch=8) as other:
        other.load_state_dict(state)
        (found,) = take(other, 1)
    assert expected["t"].tolist() == [list(range(8, 16))]
    assert found["t"].tolist() == [[8, 9, 10, 0, 1, 2, 3, 4]]
    assert found["episode_id"].tolist() == [[0, 0, 0, 1, 1, 1, 1, 1]]
    np.testing.assert_array_equal(found["observation"][:, :3], expected["observation"][:, :3])
    # The observation that followed the last step before is that of the episode before.
    np.testing.assert_array_equal(found["next_observation"][:, 2], expected["next_observation"][:, 2])


@pytest.mark.parametrize("after", ["seed", "failure", "load"])
def test_a_loaded_rollout_that_is_dropped_is_counted(after, take):
    # CX1, CQ3, CS2
    with hr.Collector(lambda: CounterEnv(100), frames_per_batch=8) as collector:
        for _ in range(3):
            one_step(collector)
        state = copied(collector.state_dict())
    calls = itertools.count()

    def policy(observation):
        if after == "failure" and next(calls) == 0:
            raise ZeroDivisionError
        return np.zeros(len(observation), np.int64)

    with hr.Collector(lambda: CounterEnv(100), policy, frames_per_batch=8) as other:
        other.load_state_dict(state)
        if after == "seed":
            other.set_seed(1)
        elif after == "load":
            other.load_state_dict(state)
        else:
            with pytest.raises(ZeroDivisionError):
                other.next()
        (batch,) = take(other, 1)
        assert other.statistics().frames_discarded == (0 if after == "load" else 3)
        assert batch["t"].tolist() == [list(range(8))]


def places(replay, count):
    data = replay.sample("t", count, views=hr.views.transition(), timeout=40).data
    return sorted((5 * data["observation"][:, 1] + data["observation"][:, 2]).tolist())


def test_steps_of_a_state_are_in_the_replay_of_the_collector_that_took_them(make_replay):
    # CF3, CQ3: each step is in one replay, and both have it in their batches.
    signature = hr.collectors.signature(lambda: CounterEnv(5))
    replays = [make_replay(signature, hr.Table.queue("t", 100), capacity=1000) for _ in range(2)]
    with hr.Collector(lambda: CounterEnv(5), frames_per_batch=10, replay_buffer=replays[0]) as collector:
        for _ in range(7):
            one_step(collector)
        state = copied(collector.state_dict())
        batch = collector.next()
    with hr.Collector(lambda: CounterEnv(5), frames_per_batch=10, replay_buffer=replays[1]) as other:
        other.load_state_dict(state)
        assert_equal([batch], [other.next()])
        assert other.statistics().frames == 10
    assert places(replays[0], 10) == list(range(10))
    assert places(replays[1], 3) == [7, 8, 9]


def test_a_rollout_that_postproc_writes_as_a_whole_cannot_be_saved_within(make_replay):
    # CR10, CQ3
    replay = make_replay(hr.collectors.signature(lambda: CounterEnv(5)))
    with hr.Collector(
        lambda: CounterEnv(5), frames_per_batch=10, replay_buffer=replay, postproc=lambda batch: batch
    ) as collector:
        one_step(collector)
        with pytest.raises(RuntimeError, match="postproc.*call next"):
            collector.state_dict()
        collector.next()
        collector.state_dict()


def test_a_free_run_stands_between_two_steps_for_a_state(make_replay):
    # CQ1, CQ3, CF6: nothing is dropped and nothing repeated; another collector goes on with the very next step.
    rollout, calls = 2000, itertools.count()
    started, stepped = threading.Event(), threading.Event()

    def policy(observation):
        if next(calls) == 10:
            stepped.set()
            assert started.wait(40)
            run = collector._run
            with run._changed:
                assert run._changed.wait_for(lambda: run.is_asked, 40)
        return np.zeros(len(observation), np.int64)

    signature = hr.collectors.signature(lambda: CounterEnv(5))
    first, second = (make_replay(signature, hr.Table.queue("t", 100_000), capacity=200_000) for _ in range(2))
    options = {"frames_per_batch": rollout, "total_frames": rollout}
    with hr.Collector(lambda: CounterEnv(5), policy, replay_buffer=first, **options) as collector:
        collector.start()
        started.set()
        assert stepped.wait(40)
        with collector.pause():
            state = copied(collector.state_dict())
            saved = collector.statistics()
        assert saved.paused
        assert (
            0 < saved.frames == state["tally"]["frames"] == len(state["rollout"]["steps"]["masked"]) < rollout
        )
        assert places(first, rollout) == list(range(rollout))
        with pytest.raises(RuntimeError, match="not started"):
            collector.load_state_dict(state)
    with hr.Collector(lambda: CounterEnv(5), replay_buffer=second, **options) as other:
        other.load_state_dict(state)
        other.start()
        assert places(second, rollout - saved.frames) == list(range(saved.frames, rollout))
        assert (other.statistics().frames, other.statistics().frames_discarded) == (rollout, 0)
