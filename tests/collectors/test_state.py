"""Saved and restored collectors: with the state of the environments the next batches are equal bit for bit."""

import os
import pickle
import signal
import sys
from functools import partial

import cloudpickle
import gymnasium
import numpy as np
import pytest

import headrace as hr
from headrace.testing import CounterEnv, counter_env_fns
from headrace.weights import SharedMemory
from tests.support.random_walk import RandomWalk, Recurrent

cloudpickle.register_pickle_by_value(sys.modules[__name__])


def assert_equal(batches, others):
    for batch, other in zip(batches, others, strict=True):
        assert list(batch) == list(other)
        for name in batch:
            np.testing.assert_array_equal(batch[name], other[name], err_msg=name)


def copied(state):
    """CQ3: plain containers, numbers, strings and arrays."""
    check_plain(state)
    return pickle.loads(pickle.dumps(state))


def check_plain(value):
    if isinstance(value, dict):
        assert all(isinstance(key, str | int) for key in value)
        value = list(value.values())
    if isinstance(value, list | tuple):
        for each in value:
            check_plain(each)
    else:
        assert value is None or isinstance(value, bool | int | float | str | np.ndarray), type(value)


CASES = {
    "walk": (RandomWalk, Recurrent, {"num_envs": 3}),
    "limited": (lambda: gymnasium.wrappers.TimeLimit(RandomWalk(), 7), Recurrent, {"num_envs": 2}),
    "cut": (RandomWalk, Recurrent, {"num_envs": 2, "max_frames_per_traj": 9}),
    "random": (RandomWalk, lambda: None, {"num_envs": 3}),
    "at first random": (RandomWalk, Recurrent, {"num_envs": 2, "init_random_frames": 36}),
    "views": (
        RandomWalk,
        lambda: None,
        {"views": {"stack": hr.View("observation", shift="-3:0"), "next": hr.View("reward", shift=1)}},
    ),
    "counters": (lambda: CounterEnv([3, 5, 2]), lambda: None, {"num_envs": 3}),
}


@pytest.mark.parametrize("before", [0, 1, 4])
@pytest.mark.parametrize("case", CASES)
def test_the_next_batches_are_equal(case, before, take):
    # CQ3
    env, make_policy, options = CASES[case]
    options = {"frames_per_batch": 12, "seed": 3, **options}
    with hr.Collector(env, make_policy(), **options) as collector:
        take(collector, before)
        if hasattr(collector.policy, "gain"):
            collector.update_policy_weights_(weights={"gain": np.array([0.5, 2.0])})
        state = copied(collector.state_dict())
        expected = take(collector, 5)
        statistics = collector.statistics()
    with hr.Collector(env, make_policy(), **options | {"seed": 77}) as other:
        take(other, 2)
        other.load_state_dict(state)
        assert_equal(expected, take(other, 5))
        again = other.statistics()
        assert (again.frames, again.batches, again.episodes) == (
            statistics.frames,
            statistics.batches,
            statistics.episodes,
        )
        assert again.episode_return_mean == pytest.approx(statistics.episode_return_mean, nan_ok=True)
        # A state is loaded as often as one likes.
        other.load_state_dict(state)
        assert_equal(expected, take(other, 5))


class VectorWithState(gymnasium.vector.SyncVectorEnv):
    def state_dict(self):
        return {
            "envs": [env.unwrapped.state_dict() for env in self.envs],
            "reset": self._autoreset_envs.copy(),
        }

    def load_state_dict(self, state):
        for env, own in zip(self.envs, state["envs"], strict=True):
            env.unwrapped.load_state_dict(own)
        self._autoreset_envs = state["reset"].copy()


@pytest.mark.parametrize("mode", ["NEXT_STEP", "SAME_STEP", "DISABLED"])
def test_vector_environments(mode, take, make_replay):
    # CQ3, CE4: also where the next step is the reset of an environment.
    def make():
        return VectorWithState(
            counter_env_fns([2, 3, 5]), autoreset_mode=gymnasium.vector.AutoresetMode[mode]
        )

    for before in range(6):
        with hr.Collector(make, frames_per_batch=6, seed=1) as collector:
            take(collector, before)
            state = copied(collector.state_dict())
            expected = take(collector, 4)
        replay = make_replay(hr.collectors.signature(make), hr.Table.queue("t", 1000), capacity=4000)
        with hr.Collector(make, frames_per_batch=6, replay_buffer=replay) as other:
            other.load_state_dict(state)
            assert_equal(expected, take(other, 4))


def test_without_the_state_of_the_environments(take):
    # CQ3, CB5: the copies are reset, ids were not used before, frames go on counting.
    env = "CartPole-v1"
    options = {"frames_per_batch": 40, "num_envs": 2, "total_frames": 160}
    with hr.Collector(env, seed=5, **options) as collector:
        before = take(collector, 2)
        state = copied(collector.state_dict())
    with hr.Collector(env, seed=6, **options) as other:
        other.load_state_dict(state)
        after = take(other, 2)
        assert other.next() is None
        assert other.statistics().frames == 160
    assert (after[0]["t"][:, 0] == 0).all()
    assert after[0]["episode_id"].min() > before[-1]["episode_id"].max()
    # The generators go on: the first states are not those of the beginning.
    assert not np.array_equal(after[0]["observation"][:, 0], before[0]["observation"][:, 0])


def test_refused(take):
    # CQ3
    with hr.Collector(RandomWalk, Recurrent(), frames_per_batch=8, num_envs=2, seed=0) as collector:
        state = collector.state_dict()
        take(collector, 1)
        good = collector.state_dict()
        with pytest.raises(ValueError, match="expected a state with loop, rollout"):
            collector.load_state_dict({})
        with pytest.raises(ValueError, match="expected a state with loop.*got NoneType"):
            collector.load_state_dict(None)
        for other in (
            {**state, "weights": None},
            {**state, "loop": {**state["loop"], "num_envs": 3}},
            {**state, "weights": {"gain": np.ones(3)}},
        ):
            with pytest.raises(ValueError):
                collector.load_state_dict(other)
        expected = take(collector, 2)
        collector.load_state_dict(good)
        assert_equal(expected, take(collector, 2))
    with pytest.raises(hr.Closed):
        collector.state_dict()
    with pytest.raises(hr.Closed):
        collector.load_state_dict(good)


def test_not_in_the_middle_of_a_step():
    caught = []

    def policy(observation):
        with pytest.raises(RuntimeError, match="in the middle of a step") as error:
            collector.state_dict()
        caught.append(error)
        return observation[:, 2] % 4

    with hr.Collector(lambda: CounterEnv(5), policy, frames_per_batch=2) as collector:
        collector.next()
    assert len(caught) == 2


@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {"reset_when_done": False},
        {"reset_at_each_iter": True},
        {"reset_when_done": False, "reset_at_each_iter": True},
        {"set_truncated": True},
    ],
    ids=str,
)
def test_options_of_collection(options, asked, take):
    # CQ3 with CR6, CR7, CR8 and CQ2
    def collect(collector, count):
        batches = []
        for number in range(count):
            collector.reset([number % 2 == 0, True, False])
            batches += take(collector, 1)
        return batches

    options = {"frames_per_batch": 6, "num_envs": 3, "seed": 3, **options}
    with hr.Collector(RandomWalk, Recurrent(), **options) as collector:
        collect(collector, 5)
        if asked:
            collector.reset([True, False, False])
        state = copied(collector.state_dict())
        expected = collect(collector, 4)
    with hr.Collector(RandomWalk, Recurrent(), **options) as other:
        other.load_state_dict(state)
        assert_equal(expected, collect(other, 4))


WORKERS = {
    "asynchronous": (hr.AsyncCollector, {}),
    "synchronous": (hr.MultiCollector, {"sync": True, "num_workers": 2}),
}


@pytest.mark.parametrize("kind", [hr.Collector, hr.AsyncCollector])
def test_a_state_that_is_saved_again_before_the_next_batch(kind, take):
    # CQ3, CB5: episodes go on under their ids, however often a state was saved and loaded in between.
    with kind(lambda: CounterEnv(7), frames_per_batch=8, num_envs=2) as collector:
        first = take(collector, 1)[0]
        state = collector.state_dict()
        expected = take(collector, 2)
        for _ in range(2):
            collector.load_state_dict(copied(state))
            state = collector.state_dict()
        found = take(collector, 2)
    assert first["t"][0].tolist() == [0, 1, 2, 3]
    assert_equal(found, expected)


@pytest.mark.parametrize("before", [0, 3])
@pytest.mark.parametrize("kind", WORKERS)
def test_workers(kind, before, take):
    # CQ3: rollouts that are complete and not handed out are part of the state.
    make, options = WORKERS[kind]
    options = {"frames_per_batch": 24, "num_envs": 2, "init_random_frames": 24, **options}
    with make(RandomWalk, Recurrent(), seed=3, **options) as collector:
        take(collector, before)
        state = copied(collector.state_dict())
        assert sorted(state) == sorted(
            ["collector", *(f"worker{i}" for i in range(options.get("num_workers", 1)))]
        )
        expected = take(collector, 5)
        frames = collector.statistics().frames
    with make(RandomWalk, Recurrent(), seed=77, **options) as other:
        take(other, 2)
        for _ in range(2):
            other.load_state_dict(state)
            assert_equal(expected, take(other, 5))
            assert other.statistics().frames == frames
        wrong = {**state["worker0"], "loop": {**state["worker0"]["loop"], "num_envs": 3}}
        with pytest.raises(ValueError, match="environments, got 3"):
            other.load_state_dict({**state, "worker0": wrong})
        with pytest.raises(ValueError, match="expected"):
            other.load_state_dict({**state, "worker2": state["worker0"]})
        assert take(other, 1)


ASKED = {
    "reset": lambda collector: collector.reset(),
    "some": lambda collector: collector.reset([True, False] * (collector._layout.num_envs // 2)),
    "seed": lambda collector: collector.set_seed(5),
    "both": lambda collector: (collector.set_seed(5), collector.reset()),
}


@pytest.mark.parametrize("ask", ASKED.values(), ids=list(ASKED))
@pytest.mark.parametrize("kind", WORKERS)
def test_cq3_resets_that_were_asked_for(kind, ask, take):
    # They are part of the state; those that were asked for before a state is loaded are dropped.
    make, options = WORKERS[kind]
    options = {"frames_per_batch": 24, "num_envs": 2, "seed": 3, **options}
    with make(RandomWalk, Recurrent(), **options) as collector:
        take(collector, 1)
        plain = copied(collector.state_dict())
        ask(collector)
        asked = copied(collector.state_dict())
        expected = take(collector, 4)
        for _ in range(2):
            collector.reset()
            collector.load_state_dict(asked)
            assert_equal(expected, take(collector, 4))
        collector.load_state_dict(plain)
        expected = take(collector, 4)
    with make(RandomWalk, Recurrent(), **options) as other:
        ask(other)  # As a program does that seeds its collector, and then finds a checkpoint.
        other.load_state_dict(plain)
        assert_equal(expected, take(other, 4))


@pytest.mark.parametrize("kind", WORKERS)
def test_cq3_cr7_a_state_in_which_every_environment_waits(kind, take):
    # A request is refused at once, as before the state was taken; a reset that is part of the state goes on.
    make, options = WORKERS[kind]
    options = {"frames_per_batch": 400, "seed": 3, "reset_when_done": False, **options}
    with make(RandomWalk, Recurrent(), **options) as collector:
        take(collector, 1)
        with pytest.raises(RuntimeError, match="waits for a reset"):
            collector.next(timeout=40)
        waiting = copied(collector.state_dict())
        collector.reset()
        asked = copied(collector.state_dict())
        expected = take(collector, 1)
    with make(RandomWalk, Recurrent(), **options) as other:
        other.load_state_dict(waiting)
        with pytest.raises(RuntimeError, match="waits for a reset"):
            other.next(timeout=40)
        other.load_state_dict(asked)
        assert_equal(expected, take(other, 1))
        other.load_state_dict(waiting)
        other.reset()
        assert_equal(expected, take(other, 1))


@pytest.mark.parametrize("kind", WORKERS)
def test_cq3_cv2_weights_that_no_step_has_taken_over(kind, take):
    # The usual place of a checkpoint is behind an update: the state has the new weights under their number.
    make, options = WORKERS[kind]
    options = {"frames_per_batch": 24, "num_envs": 2, "seed": 3, "track_policy_version": True, **options}
    with make(RandomWalk, Recurrent(), **options) as collector:
        take(collector, 1)
        collector.update_policy_weights_(weights={"gain": np.full(2, 0.5)})
        state = copied(collector.state_dict())
        expected = take(collector, 4)
    with make(RandomWalk, Recurrent(), **options) as other:
        other.load_state_dict(state)
        assert_equal(expected, take(other, 4))
        assert other.policy_version == 1
        np.testing.assert_array_equal(other.getattr_policy("gain"), [0.5, 0.5])


class HeldOnce(RandomWalk):
    """It says so in its third step, and waits until it may go on."""

    def __init__(self, gate):
        self.gate, self.steps = gate, 0

    def step(self, action):
        self.steps += 1
        if self.steps == 3:
            with open(self.gate + ".in", "w"):
                pass
            with open(self.gate) as gate:
                gate.read()
        return super().step(action)


@pytest.fixture
def within_a_batch(tmp_path, monkeypatch):
    """Makes collectors in the middle of a batch, whose workers stay within a step until a state is asked for."""

    def make(**options):
        gates = [str(tmp_path / f"gate{worker}") for worker in range(2)]
        for gate in gates:
            os.mkfifo(gate)
            os.mkfifo(gate + ".in")
        collector = hr.MultiCollector([partial(HeldOnce, gate) for gate in gates], Recurrent(), **options)
        with pytest.raises(hr.DeadlineExceeded):
            collector.next(timeout=0)
        for gate in gates:
            open(gate + ".in").close()
        status = collector._group.status
        wait = status.wait_for_none

        def release(late, timeout, event):
            if event.startswith("to pause"):  # All workers have been asked to.
                monkeypatch.undo()
                for gate in gates:
                    open(gate, "w").close()
            wait(late, timeout, event)

        monkeypatch.setattr(status, "wait_for_none", release)
        return collector

    return make


SYNCHRONOUS = {"sync": True, "frames_per_batch": 24, "seed": 3, "track_policy_version": True}


def published(collector, gain):
    collector.update_policy_weights_(weights={"gain": np.full(2, gain)})


@pytest.fixture
def expected_of_updates(take):
    """Collects batches, with new weights after the first of them."""

    def collect(*gains):
        with hr.MultiCollector([RandomWalk] * 2, Recurrent(), **SYNCHRONOUS) as collector:
            batches = take(collector, 1)
            for gain in gains:
                published(collector, gain)
            return batches + take(collector, 3)

    return collect


def test_cq3_cv2_weights_for_the_batch_after_the_one_under_way(within_a_batch, expected_of_updates, take):
    # The rollouts under way go on with the weights that they began with; the next ones have the new weights.
    expected = expected_of_updates(0.5)
    assert [np.unique(batch["policy_version"]).tolist() for batch in expected] == [[0], [1], [1], [1]]
    with within_a_batch(**SYNCHRONOUS) as collector:
        published(collector, 0.5)
        state = copied(collector.state_dict())
        assert [state[f"worker{i}"]["rollout"]["left"] for i in range(2)] == [9, 9]
        again = copied(collector.state_dict())
        assert_equal(expected, take(collector, 4))
        collector.load_state_dict(again)
        assert_equal(expected, take(collector, 4))
    with hr.MultiCollector([RandomWalk] * 2, Recurrent(), **SYNCHRONOUS) as other:
        for _ in range(2):
            other.load_state_dict(state)
            state = copied(other.state_dict())
            assert other.policy_version == 1
            assert_equal(expected, take(other, 4))
            assert other.get_distant_attr("policy_version") == [1, 1]
            np.testing.assert_array_equal(other.getattr_policy("gain"), [0.5, 0.5])


def test_cq3_cv2_a_worker_that_has_not_begun_a_batch_takes_over_no_newer_weights(
    expected_of_updates, monkeypatch, take
):
    # One worker has completed its rollout and the other one has not begun, here and where the state is loaded.
    expected = expected_of_updates(0.5)
    with hr.MultiCollector([RandomWalk] * 2, Recurrent(), **SYNCHRONOUS) as collector:
        status, pid = collector._group.status, collector.statistics().workers[1].pid
        is_collecting = collector._group.collection.admission.is_collecting
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(hr.DeadlineExceeded):
            collector.next(timeout=0)
        with status.changed:
            assert status.changed.wait_for(lambda: is_collecting(1) and not is_collecting(0), 40)
        published(collector, 0.5)
        wait = status.wait_for_none

        def release(late, timeout, event):
            if event.startswith("to pause"):  # All workers have been asked to.
                os.kill(pid, signal.SIGCONT)
            wait(late, timeout, event)

        monkeypatch.setattr(status, "wait_for_none", release)
        state = copied(collector.state_dict())
        assert_equal(expected, take(collector, 4))
        collector.load_state_dict(state)
        assert_equal(expected, take(collector, 4))
    with hr.MultiCollector([RandomWalk] * 2, Recurrent(), **SYNCHRONOUS) as other:
        other.load_state_dict(state)
        again = copied(other.state_dict())  # The other worker is still owed its rollout.
        assert_equal(expected, take(other, 4))
        other.load_state_dict(again)
        assert_equal(expected, take(other, 4))


def test_cq3_cv2_newer_weights_than_those_of_the_state(within_a_batch, expected_of_updates, take):
    # Weights that are published after the state was taken or loaded are newer than its own.
    expected = expected_of_updates(0.5, 2.0)
    with within_a_batch(**SYNCHRONOUS) as collector:
        published(collector, 0.5)
        state = copied(collector.state_dict())
        published(collector, 2.0)
        newer = copied(collector.state_dict())
        assert_equal(expected, take(collector, 4))
    with hr.MultiCollector([RandomWalk] * 2, Recurrent(), **SYNCHRONOUS) as other:
        other.load_state_dict(state)
        published(other, 2.0)
        assert_equal(expected, take(other, 4))
        other.load_state_dict(newer)
        assert_equal(expected, take(other, 4))


@pytest.mark.parametrize("reads", ["the memory of the collector", "an end of its own"])
def test_cq3_weights_for_the_next_batch_that_do_not_fit_are_refused(within_a_batch, take, reads):
    own = reads == "an end of its own"
    schemes = {"weight_sync_schemes": {"policy": SharedMemory(Recurrent().state_dict())}} if own else {}
    with within_a_batch(**SYNCHRONOUS, **schemes) as collector:
        published(collector, 0.5)
        state = copied(collector.state_dict())
        expected = take(collector, 2)
        wrong = copied(state)
        ahead = wrong["worker1"]["weights_ahead"]
        held = wrong["collector"]["held"]["publications"]
        (ahead["weights"] if own else held[0]["weights"]["policy"])["gain"] = np.zeros(3)
        with pytest.raises(hr.SpecError, match="gain"):
            collector.load_state_dict(wrong)
        collector.load_state_dict(state)
        assert_equal(expected, take(collector, 2))
    for scheme in schemes.get("weight_sync_schemes", {}).values():
        scheme.close()


@pytest.mark.parametrize("kind", WORKERS)
def test_cv5_cx3_a_worker_that_is_started_again_has_the_loaded_weights(kind, take):
    # Also where no weights were published since they were loaded.
    make, options = WORKERS[kind]
    options = {"frames_per_batch": 24, "num_envs": 2, "seed": 3, "track_policy_version": True, **options}
    with make(RandomWalk, Recurrent(), **options) as collector:
        collector.update_policy_weights_(weights={"gain": np.full(2, 0.5)})
        take(collector, 1)
        state = copied(collector.state_dict())
    with make(RandomWalk, Recurrent(), **options) as other:
        other.load_state_dict(state)
        os.kill(other.statistics().workers[0].pid, signal.SIGKILL)
        take(other, 4)
        assert other.statistics().restarts == 1
        assert other.policy_version == 1
        np.testing.assert_array_equal(other.getattr_policy("gain"), [0.5, 0.5])


def test_cv2_weights_of_some_workers_keep_their_number_when_they_are_loaded(take):
    options = {"frames_per_batch": 24, "num_envs": 2, "seed": 3, "track_policy_version": True}
    options |= WORKERS["synchronous"][1]
    with hr.MultiCollector(RandomWalk, Recurrent(), **options) as collector:
        collector.update_policy_weights_(weights={"gain": np.full(2, 0.5)}, worker_ids=[0])
        take(collector, 1)
        state = copied(collector.state_dict())
        expected = take(collector, 2)
    assert np.unique(expected[1]["policy_version"]).tolist() == [0, 1]
    with hr.MultiCollector(RandomWalk, Recurrent(), **options) as other:
        other.load_state_dict(state)
        assert_equal(expected, take(other, 2))


def test_several_asynchronous_workers(take):
    # CQ3: what each worker hands out goes on as it would have, in whatever order the workers are.
    options = {"sync": False, "num_workers": 2, "frames_per_batch": 12, "num_envs": 2}

    def by_worker(collector):
        batches = take(collector, 24)
        own = [[batch for batch in batches if batch.worker_idx == worker] for worker in range(2)]
        assert min(map(len, own)) >= 2
        return own

    with hr.MultiCollector(RandomWalk, Recurrent(), seed=3, **options) as collector:
        take(collector, 5)
        state = copied(collector.state_dict())
        expected = by_worker(collector)
    with hr.MultiCollector(RandomWalk, Recurrent(), **options) as other:
        other.load_state_dict(state)
        for mine, known in zip(by_worker(other), expected, strict=True):
            for batch, right in zip(mine, known, strict=False):
                for name in batch:
                    if name != "episode_id":  # Numbered in the order in which the workers complete rollouts.
                        np.testing.assert_array_equal(batch[name], right[name], err_msg=name)


def test_versions_of_workers_go_on(take):
    # CV5: the next publication after loading version v is v + 1.
    options = {"frames_per_batch": 12, "num_envs": 2, "seed": 1}
    with hr.AsyncCollector(RandomWalk, Recurrent(), **options) as collector:
        for gain in (2.0, 3.0):
            collector.update_policy_weights_(weights={"gain": np.full(2, gain)})
        take(collector, 3)
        state = copied(collector.state_dict())
    with hr.AsyncCollector(RandomWalk, Recurrent(), **options) as other:
        other.load_state_dict(state)
        assert other.getattr_policy("gain").tolist() == [3.0, 3.0]
        other.update_policy_weights_(weights={"gain": np.full(2, 5.0)})
        batches = take(other, 5)
        assert [set(np.unique(batch["policy_version"])) <= {2, 3} for batch in batches] == [True] * 5
        assert (batches[-1]["policy_version"] == 3).all()
        assert other.getattr_policy("gain").tolist() == [5.0, 5.0]


@pytest.mark.parametrize("kind", WORKERS)
def test_workers_without_the_state_of_the_environments(kind, take):
    # CQ3, CB5
    make, options = WORKERS[kind]
    options = {"frames_per_batch": 24, "num_envs": 2, **options}
    with make("CartPole-v1", seed=5, **options) as collector:
        before = take(collector, 3)
        if kind == "asynchronous":  # Else a rollout under way goes on, and its episodes begin anew within it.
            group = collector._group
            with group.status.changed:
                assert group.status.changed.wait_for(lambda: len(group.collection.batches) == 2, 40)
        state = copied(collector.state_dict())
        waiting = len(state["collector"]["waiting"])
    with make("CartPole-v1", seed=6, **options) as other:
        other.load_state_dict(state)
        after = take(other, waiting + 2)
    assert (after[waiting]["t"][:, 0] == 0).all()
    known = np.concatenate([batch["episode_id"].ravel() for batch in [*before, *after[:waiting]]])
    assert after[waiting]["episode_id"].min() > known.max()
