"""Saved and restored collectors with workers, in the middle of their rollouts."""

import os
import pickle
import sys
import threading
import time
from contextlib import suppress
from functools import partial

import cloudpickle
import numpy as np
import pytest
from full_stores import wait_until_a_page_is_owed

import headrace as hr
import headrace.collectors.multi.collected_state as collected_state_module
from headrace.collectors.handle.handle import WorkerHandle
from headrace.collectors.messages import Pause
from headrace.testing import CounterEnv
from headrace.testing.agents import CounterAgents
from tests.support.random_walk import RandomWalk

cloudpickle.register_pickle_by_value(sys.modules[__name__])

STEPS = 400


def state_within_a_rollout(collector, steps=STEPS):
    """Returns a state in which worker 0 has taken some of the steps of a rollout."""
    end = time.monotonic() + 40  # Beside a busy machine workers stand between two rollouts at most looks.
    while time.monotonic() < end:
        with suppress(hr.DeadlineExceeded):
            collector.next(timeout=0)  # Lets the workers begin.
        state = pickle.loads(pickle.dumps(collector.state_dict()))
        rollout = state["worker0"]["rollout"]
        if rollout is not None and 0 < rollout["left"] < steps:
            return state
    raise AssertionError("no state was taken in the middle of a rollout")


def assert_equal(batches, others, without=()):
    for batch, other in zip(batches, others, strict=True):
        assert list(batch) == list(other)
        for name in batch:
            if name not in without:
                np.testing.assert_array_equal(batch[name], other[name], err_msg=name)


ASYNC = {"sync": False, "num_workers": 1}
SYNC = {"sync": True, "num_workers": 2}
CASES = {
    "views": {
        **ASYNC,
        "max_staleness": 1,
        "views": {"stack": hr.View("observation", shift="-3:0"), "next": hr.View("reward", shift=1)},
    },
    "cut": {**ASYNC, "max_frames_per_traj": 9, "set_truncated": True},
    "at first random": {**SYNC, "init_random_frames": 10 * STEPS},
    "waiting": {**SYNC, "reset_when_done": False, "reset_at_each_iter": True},
}


@pytest.mark.parametrize("case", CASES)
def test_the_rollout_under_way_is_part_of_the_state(case, take):
    # CQ1, CQ3: bit for bit as if never stopped, for the collector that was saved and for the one that goes on.
    options = CASES[case]
    frames = 2 * STEPS * (options["num_workers"] if options["sync"] else 1)
    options = {"frames_per_batch": frames, "num_envs": 2, **options}
    with hr.MultiCollector(RandomWalk, seed=3, **options) as collector:
        state = state_within_a_rollout(collector)
        expected = take(collector, 4)
        statistics = collector.statistics()
    with hr.MultiCollector(RandomWalk, seed=77, **options) as other:
        with pytest.raises(hr.DeadlineExceeded):
            other.next(timeout=0)
        for _ in range(2):  # The first one comes in the middle of a rollout, too.
            other.load_state_dict(state)
            assert_equal(expected, take(other, 4))
        found = other.statistics()
    assert (found.frames, found.batches, found.episodes, found.episode_return_mean) == (
        statistics.frames,
        statistics.batches,
        statistics.episodes,
        statistics.episode_return_mean,
    )


@pytest.mark.parametrize("options", [ASYNC, SYNC])
def test_an_agent_whose_last_step_is_in_the_state(options, take):
    # CR8, CQ3: with several agents it is marked when the rollout is complete.
    workers = options["num_workers"]
    options = {
        **options,
        "frames_per_batch": 2 * STEPS * workers,
        "set_truncated": True,
        "reset_at_each_iter": True,
    }
    make = partial(hr.MultiCollector, partial(CounterAgents, [3, 10 * STEPS]), seed=3, **options)
    with make() as collector:
        state = state_within_a_rollout(collector, STEPS - 3)
        expected = take(collector, 2)
    with make() as other:
        other.load_state_dict(state)
        found = take(other, 2)
    assert_equal(expected, found)
    for batch in found:
        assert batch["mask"].sum(axis=1).tolist() == [3, STEPS] * workers
        steps, lanes = np.nonzero(batch["truncated"].T)
        assert steps.tolist() == [2] * workers + [STEPS - 1] * workers
        assert lanes.tolist() == [*range(0, 2 * workers, 2), *range(1, 2 * workers, 2)]


def joined(batches):
    """The steps of batches that follow one another."""
    return {name: np.concatenate([batch[name] for batch in batches], axis=1) for name in batches[0]}


def test_environments_that_are_reset_after_loading(take):
    # CQ2, CQ3, CB5: the rollout under way goes on with fresh episodes, under ids that were not used.
    # On a busy machine many rollouts pass before a state is within one.
    length, count = 10_000 * STEPS, 6
    with hr.AsyncCollector(lambda: CounterEnv(length), frames_per_batch=STEPS, seed=3) as collector:
        state = state_within_a_rollout(collector)
        # Complete rollouts may wait before the one under way, and a quick worker takes more before the reset comes.
        done = STEPS * (len(state["collector"]["waiting"]) + 1) - state["worker0"]["rollout"]["left"]
        expected = joined(take(collector, count))
        collector.load_state_dict(state)
        collector.reset()
        cut = joined(take(collector, count))
        # The second one has no state of its environments.
        state["worker0"]["loop"]["stepper"]["environments"] = [None]
        collector.load_state_dict(state)
        anew = joined(take(collector, count))
    assert np.diff(expected["t"][0]).tolist() == [1] * (count * STEPS - 1)
    for batch in (cut, anew):
        begin = int(np.argmax(batch["t"][0, 1:] == 0)) + 1
        for name in ("observation", "action", "t", "episode_id"):
            np.testing.assert_array_equal(batch[name][0, :begin], expected[name][0, :begin])
        # The worker may take steps between the two calls.
        assert begin == done if batch is anew else begin >= done
        assert batch["t"][0, begin:].tolist() == list(range(count * STEPS - begin))
        ids = np.unique(batch["episode_id"])
        assert ids.tolist() == [expected["episode_id"][0, 0], ids.max()]
        assert len(ids) == 2
        assert not batch["truncated"].any()
        # The observation that followed the last step before is that of the episode before.
        assert batch["next_observation"][0, begin - 1, 2] == expected["next_observation"][0, begin - 1, 2]


@pytest.mark.parametrize("options", [{}, {"reset_at_each_iter": True}], ids=str)
def test_environments_that_are_reset_between_loading_and_the_next_rollout(options, take):
    # CQ2, CR6, CB5: a new id begins with every reset.
    with hr.MultiCollector(
        lambda: CounterEnv(100), sync=True, num_workers=1, frames_per_batch=8, **options
    ) as collector:
        (before,) = take(collector, 1)
        collector.load_state_dict(collector.state_dict())
        collector.reset()
        (after,) = take(collector, 1)
    assert after["t"].tolist() == [list(range(8))]
    assert after["episode_id"].min() > before["episode_id"].max()


def test_a_state_takes_one_step_and_no_rollout():
    # CQ1: a rollout of a million steps takes longer than the limit of 30 s.
    frames = 1_000_000
    with hr.AsyncCollector(lambda: CounterEnv(7), frames_per_batch=frames) as collector:
        state = state_within_a_rollout(collector, frames)
        collector.load_state_dict(state)
        again = collector.state_dict()
    for each in (state, again):
        steps = len(each["collector"]["partial"]["0"]["steps"]["masked"])
        assert each["worker0"]["rollout"] == {"left": frames - steps, "at_random": False}


class Held(CounterEnv):
    """Its 30th step makes a folder, and lasts until that is gone."""

    def __init__(self, folder):
        super().__init__(7)
        self.folder, self.steps = folder, 0

    def step(self, action):
        self.steps += 1
        if self.steps == 30:
            self.folder.mkdir()
            while self.folder.exists():
                time.sleep(0.01)
        return super().step(action)


def test_a_step_that_lasts_too_long_for_a_state(monkeypatch, tmp_path, take, counters):
    # CQ1: a limit, and nothing is lost by it.
    monkeypatch.setattr(collected_state_module, "_SECONDS", 0.3)
    folder = tmp_path / "held"
    with hr.AsyncCollector(lambda: Held(folder), frames_per_batch=20) as collector:
        batches = take(collector, 1)
        while not folder.exists():
            time.sleep(0.01)
        with pytest.raises(hr.DeadlineExceeded, match="worker 0.* to pause"):
            collector.state_dict()
        folder.rmdir()
        batches += take(collector, 3)
        monkeypatch.undo()
        collector.load_state_dict(collector.state_dict())
        batches += take(collector, 1)
        assert collector.statistics().frames_discarded == 0
    counters(batches, [7])


def test_free_running_goes_on_with_the_rollout_under_way(make_replay):
    # CQ3, CF6: what the replay holds is counted once, and collection ends at the total.
    total = 10 * STEPS
    signature = hr.collectors.signature(lambda: CounterEnv(5))
    options = {"frames_per_batch": STEPS, "total_frames": total}
    tables = [make_replay(signature, hr.Table.queue("t", 2 * total), capacity=4 * total) for _ in range(2)]
    with hr.AsyncCollector(lambda: CounterEnv(5), replay_buffer=tables[0], **options) as collector:
        collector.start()
        tables[0].sample("t", 1, views=hr.views.transition(), timeout=40)
        with collector.pause():
            state = collector.state_dict()
            saved = collector.statistics()
            assert saved.paused
        assert saved.frames == state["collector"]["tally"]["frames"]
    with hr.AsyncCollector(lambda: CounterEnv(5), replay_buffer=tables[1], **options) as other:
        other.load_state_dict(state)
        other.start()
        count = total - saved.frames
        data = tables[1].sample("t", count, views=hr.views.transition(), timeout=40).data
        assert other.statistics().frames == total
    # The counter goes on with the step after the last one that was written.
    places = 5 * data["observation"][:, 1] + data["observation"][:, 2]
    assert sorted(places.tolist()) == list(range(saved.frames, total))


def test_a_state_of_a_worker_that_waits_for_a_page(make_replay):
    # CQ3, CF6: the store is full in the middle of a rollout, and the state has all steps that were taken.
    steps, signature = 500, hr.collectors.signature(lambda: CounterEnv(10_000))
    replay = make_replay(signature, hr.Table.queue("t", 100_000), capacity=2000)
    with hr.AsyncCollector(
        lambda: CounterEnv(10_000), frames_per_batch=steps, replay_buffer=replay
    ) as collector:
        collector.start()
        wait_until_a_page_is_owed(collector)
        state = collector.state_dict()["worker0"]
    taken = int(state["loop"]["counter"]["lengths"][0])
    assert taken % steps
    assert state["rollout"]["left"] == steps - taken % steps


class Turns(threading.Condition):
    """A condition that tells when a thread has to wait for it."""

    def __init__(self):
        super().__init__()
        self.is_waited_for = threading.Event()

    def wait(self, timeout=None):
        self.is_waited_for.set()
        return super().wait(timeout)


@pytest.mark.parametrize("other", ["state", "pause"])
def test_threads_that_stop_the_workers_take_turns(other, make_replay, monkeypatch):
    # CQ1, CQ3, CF6: the first one would let the workers go on while the second one needs them still.
    replay = make_replay(hr.collectors.signature(lambda: CounterEnv(3)))
    with hr.MultiCollector(
        [lambda: CounterEnv(3)] * 2, sync=False, frames_per_batch=50, replay_buffer=replay
    ) as collector:
        group = collector._group
        turns = group.pauses._turns = Turns()
        collector.start()
        call_each, inside, most = group.call_each, [], []

        def watched(*arguments, **options):
            inside.append(None)
            most.append(len(inside))
            if len(most) == 1:
                begun.set()
                assert turns.is_waited_for.wait(20)
                assert all(handle.peer.paused_at == group.status.pause_wanted for handle in group.handles)
            result = call_each(*arguments, **options)
            inside.pop()
            return result

        def stop_workers():
            if other == "state":
                states.append(collector.state_dict())
            else:
                with collector.pause():
                    states.append(group.pauses.are_complete)

        begun, states = threading.Event(), []
        monkeypatch.setattr(group, "call_each", watched)
        first = threading.Thread(target=lambda: states.append(collector.state_dict()))
        first.start()
        assert begun.wait(20)
        second = threading.Thread(target=stop_workers)
        second.start()
        for thread in (first, second):
            thread.join(30)
            assert not thread.is_alive()
        assert len(states) == 2
        assert max(most) == 1
        assert states[1] is not False
        assert not group.pauses.are_complete


def test_a_state_behind_the_end_of_every_episode(tmp_path, monkeypatch, take):
    # CQ3, CR7: the rollout under way has a step, so it is handed out; only what would follow has none.
    begun, ends = tmp_path / "begun", tmp_path / "ends"
    for fifo in (begun, ends):
        os.mkfifo(fifo)

    class Ending(RandomWalk):
        def step(self, action):
            begun.write_text("the step has begun")
            ends.read_text()
            return self.place, 1.0, True, False, {}

    options = {"frames_per_batch": 5, "reset_when_done": False, "seed": 3}
    with hr.AsyncCollector(Ending, **options) as collector:
        with pytest.raises(hr.DeadlineExceeded):
            collector.next(timeout=0)
        begun.read_text()
        send = WorkerHandle.send

        def send_and_end(own, *messages, **parts):
            send(own, *messages, **parts)
            if isinstance(messages[0], Pause):
                ends.write_text("the question is there")

        with monkeypatch.context() as patched:
            patched.setattr(WorkerHandle, "send", send_and_end)
            state = collector.state_dict()
        assert state["worker0"]["rollout"]["left"] == 4
        expected = take(collector, 1)
        with pytest.raises(RuntimeError, match="waits for a reset"):
            collector.next(timeout=40)
    with hr.AsyncCollector(Ending, **options) as other:
        other.load_state_dict(state)
        assert_equal(expected, take(other, 1))
        with pytest.raises(RuntimeError, match="waits for a reset"):
            other.next(timeout=40)
