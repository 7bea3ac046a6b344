"""Free running of a collector in this process."""

import threading
import weakref

import numpy as np
import pytest

import headrace as hr
from headrace.testing import CounterEnv

SIGNATURE = hr.collectors.signature(lambda: CounterEnv(5))
LENGTHS = (5, 3)


def environments():
    """`create_env_fn` of two copies, with episodes of 5 and 3 steps."""
    made = iter([CounterEnv(length, copy=copy) for copy, length in enumerate(LENGTHS)])
    return lambda: next(made)


def queue(max_size=10_000):
    return hr.Table.queue("t", max_size)


def check_transitions(data, frames=None):
    """Every transition is there once, nothing is missing, and all next observations are right."""
    seen = data["observation"]
    for copy, length in enumerate(LENGTHS):
        mine = seen[seen[:, 0] == copy]
        count = np.arange(len(mine))
        np.testing.assert_array_equal(mine[:, 1], count // length)
        np.testing.assert_array_equal(mine[:, 2], count % length)
    np.testing.assert_array_equal(data["next_observation"], np.add(seen, [0, 0, 1]))
    np.testing.assert_array_equal(data["reward"], 4 * seen[:, 2] + data["action"])
    own = np.array(LENGTHS)[seen[:, 0]]
    np.testing.assert_array_equal(data["terminated"], seen[:, 2] + 1 == own)
    if frames is not None:
        assert len(seen) == frames


def all_transitions(replay):
    return replay.sample("t", len(replay.table("t")), views=hr.views.transition(), timeout=5).data


def wait_for(run, there):
    with run._changed:
        assert run._changed.wait_for(there, 40)


@pytest.mark.parametrize("capacity", [None, 200])
def test_it_ends_at_the_total(make_replay, capacity):
    # CF4, CF5, CF7: also through a replay that is smaller than what is collected, while a learner makes room.
    replay = make_replay(SIGNATURE, queue(), **({} if capacity is None else {"capacity": capacity}))
    frames, taken, asked = 600, [], threading.Event()
    with hr.Collector(
        environments(), frames_per_batch=40, num_envs=2, total_frames=frames, replay_buffer=replay
    ) as collector:
        collector.pre_collect_hook = lambda: asked.wait(40)
        collector.start()
        assert collector.statistics().running
        asked.set()
        if capacity is not None:
            while sum(len(each["reward"]) for each in taken) < frames - 2:
                taken.append(replay.sample("t", 1, views=hr.views.transition(), timeout=40).data)
        wait_for(collector._run, lambda: collector._run.has_ended)
        statistics = collector.statistics()
        assert (statistics.frames, statistics.batches, statistics.running) == (frames, 15, False)
    if len(replay.table("t")):
        taken.append(all_transitions(replay))
    names = taken[0]
    check_transitions({name: np.concatenate([each[name] for each in taken]) for name in names}, frames)


def test_pauses_drop_and_repeat_nothing(make_replay):
    # CF6: inside everything collected is in the replay, and nothing is written.
    replay = make_replay(SIGNATURE, queue(1_000_000), capacity=1_000_000)
    with hr.Collector(environments(), frames_per_batch=50, num_envs=2, replay_buffer=replay) as collector:
        collector.start()
        for _ in range(20):
            before = collector.statistics().frames
            with collector.pause():
                statistics = collector.statistics()
                assert statistics.paused
                # One transition a lane waits for its next observation.
                assert len(replay.table("t")) >= statistics.frames - 2
                assert statistics.frames >= before
                assert collector.statistics().frames == statistics.frames
                with pytest.raises(RuntimeError, match="not paused"), collector.pause():
                    pass
            with pytest.raises(ZeroDivisionError), collector.pause():
                raise ZeroDivisionError
            while collector.statistics().frames == statistics.frames:
                assert collector.statistics().running
        collector.async_shutdown()
        frames = collector.statistics().frames
        assert not collector.statistics().running
    check_transitions(all_transitions(replay), frames)


def test_a_full_replay_can_be_paused_and_shut_down(make_replay):
    # CF6, CF7, CV7: no step is taken without room for it.
    replay = make_replay(SIGNATURE, queue(), capacity=200)
    with hr.Collector(environments(), frames_per_batch=50, num_envs=2, replay_buffer=replay) as collector:
        collector.start()
        while True:
            with collector.pause():
                frames = collector.statistics().frames
                assert len(replay.table("t")) >= frames - 2
                full = collector._rollouts.output.room() == 0
            if full:
                break
        assert collector.getattr_env("closed") == 0
        collector.shutdown(raise_on_error=False)  # There may be no room for the final rows.
    data = all_transitions(replay)
    check_transitions(data)
    assert frames - 2 <= len(data["reward"]) <= frames


def test_wrong_calls(make_replay):
    # CF4, CF6
    with hr.Collector(lambda: CounterEnv(5), frames_per_batch=4) as collector:
        with pytest.raises(RuntimeError, match="replay_buffer"):
            collector.start()
        with pytest.raises(RuntimeError, match="runs freely"), collector.pause():
            pass
    replay = make_replay(SIGNATURE, queue())
    with hr.Collector(lambda: CounterEnv(5), frames_per_batch=4, replay_buffer=replay) as collector:
        collector.start()
        with pytest.raises(RuntimeError, match="started already"):
            collector.start()
        with pytest.raises(RuntimeError, match="not started"):
            collector.next()
        with pytest.raises(RuntimeError, match="not started"):
            collector.load_state_dict(collector.state_dict())
    with hr.Collector(lambda: CounterEnv(5), frames_per_batch=4, replay_buffer=replay) as collector:
        collector.next()
        with pytest.raises(RuntimeError, match="is being iterated"):
            collector.start()
    with pytest.raises(hr.Closed):
        collector.start()
    with pytest.raises(hr.Closed), collector.pause():
        pass


class Failing(CounterEnv):
    """Fails in its fourth episode, and in its second after that."""

    def step(self, action):
        if self.episode in (3, 5) and self.step_count == 2:
            raise OSError("by intent")
        return super().step(action)


def test_a_failure_is_not_silent(make_replay, caplog):
    # CF8
    replay = make_replay(SIGNATURE, queue())
    collector = hr.Collector(lambda: Failing(4), frames_per_batch=100, replay_buffer=replay)
    collector.start()

    def sample_for_ever():
        while True:  # It waits for rows that will not come.
            replay.sample("t", 1, timeout=40)

    with pytest.raises(OSError, match="by intent"):
        sample_for_ever()
    assert "collecting has ended: OSError: by intent" in caplog.text
    statistics = collector.statistics()
    assert not statistics.running
    assert statistics.failure == "OSError: by intent"
    with pytest.raises(OSError, match="by intent"):
        collector.getattr_env("closed")
    assert collector.statistics().failure is None
    # CX1: it can be used again.
    collector.start()
    wait_for(collector._run, lambda: collector._run.has_ended)
    with pytest.raises(OSError, match="by intent"):
        collector.shutdown()
    assert collector.env.closed == 1
    collector.shutdown()


def test_seeds_and_weights_while_it_runs(make_replay):
    class Policy:
        def __init__(self):
            self.action = np.zeros((), np.int64)

        def __call__(self, observation):
            return np.repeat(self.action, len(observation))

        def state_dict(self):
            return {"action": self.action}

        def load_state_dict(self, state):
            self.action = np.array(state["action"])

    replay = make_replay(SIGNATURE, queue(1_000_000), capacity=1_000_000)
    with hr.Collector(
        environments(), Policy(), frames_per_batch=60, num_envs=2, replay_buffer=replay
    ) as collector:
        collector.start()

        def wait_for_steps():
            before = collector.statistics().frames
            while collector.statistics().frames < before + 50:
                assert collector.statistics().running

        for action in range(1, 4):
            wait_for_steps()
            collector.update_policy_weights_(weights={"action": np.array(action)})
        wait_for_steps()
        collector.set_seed(9)
        while collector.getattr_env("seeds")[-1] != 9 and 9 not in collector.getattr_env("seeds"):
            pass
        assert collector.state_dict()["tally"]["newest"] == 3
    data = all_transitions(replay)
    assert np.unique(data["action"]).tolist() == [0, 1, 2, 3]
    np.testing.assert_array_equal(data["next_observation"], data["observation"] + [0, 0, 1])
    assert (np.diff(data["action"][data["observation"][:, 0] == 0]) >= 0).all()


def test_a_step_that_takes_long(make_replay, monkeypatch):
    # CF6: DeadlineExceeded, and it goes on.
    go_on, stands = threading.Event(), threading.Event()

    class Slow(CounterEnv):
        def step(self, action):
            if self.step_count == 2 and self.episode == 0:
                stands.set()
                assert go_on.wait(40)
            return super().step(action)

    monkeypatch.setattr("headrace.collectors.collector._STAND_SECONDS", 0.05)
    replay = make_replay(SIGNATURE, queue())
    with hr.Collector(
        lambda: Slow(5), frames_per_batch=20, total_frames=100, replay_buffer=replay
    ) as collector:
        collector.start()
        assert stands.wait(40)
        with pytest.raises(hr.DeadlineExceeded, match="takes long"), collector.pause():
            pass
        with pytest.raises(hr.DeadlineExceeded, match="to end"):
            collector.shutdown(timeout=0.05)
        go_on.set()
    assert len(replay.table("t")) >= 3


def test_weights_are_never_replaced_during_a_forward_pass(make_replay):
    # CW3: the call returns meanwhile, and the weights act from the next step on.
    class Policy:
        def __init__(self):
            self.weights = {"w": np.zeros(2)}
            self.is_called, self.may_return = threading.Event(), threading.Event()
            self.seen = []

        def state_dict(self):
            return self.weights

        def load_state_dict(self, weights):
            self.weights = weights

        def __call__(self, observation):
            before = float(self.weights["w"][0])
            self.is_called.set()
            assert self.may_return.wait(40)
            self.seen.append((before, float(self.weights["w"][0])))
            return np.zeros(len(observation), int)

    policy = Policy()
    replay = make_replay(SIGNATURE, queue())
    with hr.Collector(
        lambda: CounterEnv(5), policy, frames_per_batch=4, total_frames=4, replay_buffer=replay
    ) as collector:
        collector.start()
        assert policy.is_called.wait(40)
        collector.update_policy_weights_({"w": np.ones(2)})
        assert policy.weights["w"][0] == 0
        policy.may_return.set()
        wait_for(collector._run, lambda: collector._run.has_ended)
    # The first call only shows which columns the policy adds.
    assert policy.seen[0] == (0, 0)
    assert set(policy.seen[1:]) == {(1, 1)}


@pytest.mark.filterwarnings("ignore:a Collector was not shut down:ResourceWarning")
def test_a_forgotten_collector_ends(make_replay):
    # CX9
    replay = make_replay(SIGNATURE, queue(1_000_000), capacity=1_000_000)
    env = CounterEnv(5)
    collector = hr.Collector(env, frames_per_batch=20, replay_buffer=replay)
    collector.start()
    thread, alive = collector._run._thread, weakref.ref(collector)
    del collector
    thread.join(40)
    assert alive() is None
    assert not thread.is_alive()
    assert env.closed == 1


def test_a_state_after_a_seed_drops_what_is_not_written_alone(make_replay):
    # CQ3, CS2: what the replay has of the rollout under way is not discarded.
    replay = make_replay(SIGNATURE, queue(1_000_000), capacity=1_000_000)
    with hr.Collector(
        environments(), frames_per_batch=100_000, num_envs=2, replay_buffer=replay
    ) as collector:
        collector.start()
        replay.sample("t", 10, timeout=40)
        with collector.pause():
            collector.set_seed(3)
            collector.state_dict()
            statistics = collector.statistics()
            assert statistics.frames > 0
            assert statistics.frames_discarded == 0
