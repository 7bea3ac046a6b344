"""Questions to collectors: they are answered between two steps, and change nothing of what is collected."""

import os
import signal
import sys
import threading
from dataclasses import dataclass

import cloudpickle
import numpy as np
import pytest
from full_stores import wait_until_a_page_is_owed

import headrace as hr
from headrace.testing import CounterEnv

cloudpickle.register_pickle_by_value(sys.modules[__name__])

KINDS = [hr.Collector, hr.AsyncCollector]


class Wrapped(CounterEnv):
    """A counter with attributes to ask for."""

    level = 3

    def __init__(self, length=5):
        super().__init__(length)
        self.table = {"a": [10, 20]}
        self.lock = threading.Lock()

    def set_level(self, level, *, twice=False):
        self.level = 2 * level if twice else level
        return self.level

    def fail(self):
        raise ZeroDivisionError("by intent")


class Policy:
    """Acts as `act` of the other tests, and has attributes."""

    gain = 7

    def __init__(self):
        self.calls = 0

    def __call__(self, observation):
        self.calls += 1
        return observation[:, 2] % 4

    @classmethod
    def made(cls):
        return 3


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def collector(request):
    with request.param(Wrapped, Policy(), frames_per_batch=8, num_envs=2) as made:
        yield made


def test_attributes(collector):
    # CQ4
    assert collector.getattr_env("level") == 3
    assert collector.getattr_env("action_space").n == 4
    assert collector.getattr_policy("gain") == 7
    for ask in (collector.getattr_env, collector.getattr_policy, collector.getattr_rb):
        with pytest.raises(AttributeError, match="absent"):
            ask("absent")


def test_the_replays_attributes(make_replay):
    # CQ4
    replay = make_replay(hr.collectors.signature(Wrapped), capacity=1000)
    for kind in KINDS:
        with kind(Wrapped, frames_per_batch=8, replay_buffer=replay) as collector:
            assert collector.getattr_rb("table_names") == replay.table_names
            assert collector.replay_buffer is replay


def test_paths_and_calls(collector):
    # CQ5
    assert collector.get_distant_attr("env.unwrapped.table['a'][1]") == [20]
    assert collector.get_distant_attr("policy.gain") == [7]
    assert collector.map_fn("env.unwrapped.set_level", [(4,)], [{"twice": True}]) == [8]
    assert collector.getattr_env("level") == 8
    assert collector.get_distant_attr("env.level") == [8]
    for path in ("", ".env", "env.", "env..level", "env[level]", "env level"):
        with pytest.raises(ValueError, match="path"):
            collector.get_distant_attr(path)
    with pytest.raises(AttributeError):
        collector.get_distant_attr("env.absent")
    with pytest.raises(KeyError):
        collector.get_distant_attr("env.table['b']")
    with pytest.raises(ValueError, match="list_of_args: expected 1, one for each worker, got 2"):
        collector.map_fn("getattr_env", [("level",), ("level",)])
    with pytest.raises(ZeroDivisionError, match="by intent"):
        collector.map_fn("env.unwrapped.fail")
    assert collector.next(timeout=40).shape == (2, 4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"list_of_args": ["level"]}, r"list_of_args: expected a tuple .* \('level',\)"),
        ({"list_of_args": [3]}, r"list_of_args: expected a tuple .* \(3,\)"),
        ({"list_of_kwargs": [("name", "level")]}, "list_of_kwargs: expected a dict for each worker"),
    ],
)
def test_cq5_arguments_of_a_call_are_tuples_and_dicts(collector, arguments, message):
    with pytest.raises(TypeError, match=message):
        collector.map_fn("getattr_env", **arguments)


def test_cq6_environments_of_workers_are_not_here():
    with hr.AsyncCollector(Wrapped, frames_per_batch=8) as collector:
        with pytest.raises(AttributeError, match="in the workers; getattr_env"):
            _ = collector.env
        assert not hasattr(collector, "env")


def test_cascade_execute(collector):
    # CQ5
    assert collector.cascade_execute("statistics").frames == 0
    assert collector.cascade_execute("policy.__call__", np.array([[0, 0, 3]])) == [3]
    assert collector.cascade_execute("getattr_env", name="level") == 3


def test_worker_idx(collector):
    # CQ6
    with pytest.raises(RuntimeError, match="not in a worker"):
        _ = collector.worker_idx
    if isinstance(collector, hr.AsyncCollector):
        assert collector.get_distant_attr("worker_idx") == [0]
        assert collector.get_distant_attr("policy_version") == [0]


def test_errors_of_a_worker_have_its_traceback():
    with hr.AsyncCollector(Wrapped, frames_per_batch=8) as collector:
        with pytest.raises(ZeroDivisionError) as caught:
            collector.map_fn("env.unwrapped.fail")
        assert any("in the worker" in note and "in fail" in note for note in caught.value.__notes__)
        # CQ4: a value that cannot be pickled.
        with pytest.raises(TypeError, match="expected a value that can be pickled, got lock"):
            collector.getattr_env("lock")
        with pytest.raises(AttributeError, match="getattr_rb"):
            collector.get_distant_attr("replay_buffer")


def test_methods_stay_with_their_objects(collector):
    # CQ4: a copy of a method would change a copy of the environment. Inline it is the environment's own.
    asked = [
        lambda: collector.getattr_policy("__call__"),
        lambda: collector.getattr_env("set_level"),
        lambda: collector.get_distant_attr("env.unwrapped.table.update")[0],
        lambda: collector.get_distant_attr("policy.__call__.__call__")[0],
    ]
    if isinstance(collector, hr.Collector):
        assert all(callable(ask()) for ask in asked)
        assert collector.getattr_env("set_level")(9) == collector.getattr_env("level")
        return
    for ask, name in zip(asked, ["__call__", "set_level", "update", "__call__"], strict=True):
        with pytest.raises(TypeError, match=rf"got the method {name} of a .* map_fn\('policy.{name}'"):
            ask()
    assert collector.getattr_policy("__class__").__name__ == "Policy"
    assert collector.get_distant_attr("policy.__class__.made")[0]() == 3
    assert collector.next(timeout=40).shape == (2, 4)


@pytest.fixture(scope="module")
def two_workers():
    with hr.MultiCollector(Wrapped, num_workers=2, sync=True, frames_per_batch=8) as made:
        yield made


class Locked:
    """Can be called, but not pickled."""

    def __init__(self):
        self.lock = threading.Lock()

    def __call__(self, *_):
        raise AssertionError("it was sent")


@dataclass
class Held:
    lock: object


@pytest.mark.parametrize(
    ("argument", "name"),
    [
        (([(3,), (threading.Lock(),)],), "argument 0 of env.unwrapped.set_level"),
        (([(3,), (Held(Locked()),)],), "argument 0 of env.unwrapped.set_level.lock"),
        (([(3,), (4,)], [{}, {"twice": Locked()}]), "argument twice of env.unwrapped.set_level"),
    ],
)
def test_cq5_arguments_that_cannot_be_sent_are_named(two_workers, argument, name):
    told = rf"^{name}: expected what can be pickled and sent to a worker, got [lL]ock.*: cannot pickle '_thread.lock'"
    with pytest.raises(TypeError, match=told + r".*in the worker"):
        two_workers.map_fn("env.unwrapped.set_level", *argument)
    # No worker was asked: the first one has its level still.
    assert two_workers.map_fn("env.unwrapped.set_level", [(3,), (3,)]) == [3, 3]


@pytest.mark.parametrize("name", ["pre_collect_hook", "post_collect_hook"])
def test_ch1_a_hook_that_cannot_be_sent_is_named_and_not_set(two_workers, name):
    setattr(two_workers, name, print)
    with pytest.raises(
        TypeError, match=rf"^{name}: expected what can be pickled .*got Locked: cannot pickle"
    ):
        setattr(two_workers, name, Locked())
    assert getattr(two_workers, name) is print
    setattr(two_workers, name, None)
    # The other one can still be set.
    two_workers.pre_collect_hook = two_workers.post_collect_hook = None


def test_ch2_a_callable_for_traces_that_cannot_be_sent_is_named(two_workers):
    with pytest.raises(
        TypeError, match=r"^ProfileConfig.on_trace_ready: expected .*got Locked: cannot pickle"
    ):
        two_workers.enable_profile(on_trace_ready=Locked())
    assert two_workers.profile_config is None


def test_closed(collector):
    # CQ7: at once.
    collector.shutdown()
    for ask in (
        lambda: collector.getattr_env("level"),
        lambda: collector.getattr_policy("gain"),
        lambda: collector.getattr_rb("table_names"),
        lambda: collector.get_distant_attr("env"),
        lambda: collector.map_fn("getattr_env", [("level",)]),
        lambda: collector.cascade_execute("statistics"),
        lambda: collector.set_seed(1),
    ):
        with pytest.raises(hr.Closed):
            ask()


def test_cq7_a_timeout_that_is_no_number_changes_nothing(collector):
    with pytest.raises(TypeError, match="timeout: expected seconds or None, got 'soon'"):
        collector.shutdown("soon")
    assert collector.next(timeout=40).frames == 8


def columns_of(batches):
    return [{name: batch[name] for name in batch} for batch in batches]


@pytest.mark.parametrize("kind", KINDS)
def test_questions_change_no_batch(kind, take):
    # CQ1: none lost, delayed or left without a successor.
    def collect(asks):
        with kind(Wrapped, Policy(), frames_per_batch=6, num_envs=3, seed=1) as collector:
            done, answers = threading.Event(), []

            def ask():
                while not done.is_set():
                    answers.append(collector.getattr_env("level"))
                    answers.extend(collector.map_fn("getattr_policy", [("gain",)]))

            thread = threading.Thread(target=ask)
            if asks:
                thread.start()
            try:
                batches = take(collector, 40)
            finally:
                done.set()
                if asks:
                    thread.join(40)
            assert set(answers) <= {3, 7}
            assert bool(answers) == asks
            return columns_of(batches)

    for quiet, asked in zip(collect(False), collect(True), strict=True):
        for name, column in quiet.items():
            np.testing.assert_array_equal(asked[name], column)


def test_a_worker_without_credit_answers(take):
    # CQ1: two rollouts wait, so the worker waits for credit.
    with hr.AsyncCollector(Wrapped, frames_per_batch=4) as collector:
        status = collector._group.status
        collector._group.collection.begin(running=False)
        with status.changed:
            assert status.changed.wait_for(lambda: len(collector._group.collection.batches) == 2, 40)
        assert collector.getattr_env("step_count") == 3
        assert [batch["t"][0, 0] for batch in take(collector, 3)] == [0, 4, 3]


def test_a_paused_worker_answers(make_replay):
    # CQ1
    replay = make_replay(hr.collectors.signature(Wrapped), capacity=10_000)
    with hr.AsyncCollector(Wrapped, frames_per_batch=8, replay_buffer=replay) as collector:
        collector.start()
        with collector.pause():
            frames = collector.getattr_env("step_count")
            assert collector.getattr_env("step_count") == frames


def test_a_worker_without_pages_answers(make_replay):
    # CQ1: the store is full, the worker waits for a page in the middle of a rollout.
    table = hr.Table(
        "t",
        sampler=hr.selectors.Fifo(),
        remover=hr.selectors.Fifo(),
        max_size=100_000,
        max_times_sampled=1,
    )
    replay = make_replay(hr.collectors.signature(Wrapped), table, capacity=200)
    with hr.AsyncCollector(Wrapped, frames_per_batch=50, replay_buffer=replay) as collector:
        collector.start()
        wait_until_a_page_is_owed(collector)
        assert collector.getattr_env("level") == 3
        with collector.pause():
            assert collector.getattr_env("level") == 3


def test_a_dead_worker_does_not_answer():
    # CQ1: and the question ends at once.
    class Ending(Wrapped):
        def end(self):
            import os

            os._exit(3)

    with hr.AsyncCollector(Ending, frames_per_batch=8, restart_workers=False) as collector:
        with pytest.raises(hr.WorkerDied) as caught:
            collector.map_fn("env.unwrapped.end")
        assert caught.value.exitcode == 3
        with pytest.raises(hr.WorkerDied):
            collector.getattr_env("level")


@pytest.mark.parametrize(
    "name", ["getattr_env", "getattr_policy", "get_distant_attr", "enable_profile", "load_state_dict"]
)
def test_cq1_the_limit_of_a_question_names_the_call(name, monkeypatch):
    # The worker stands still, so that no answer comes.
    with hr.AsyncCollector(Wrapped, Policy(), frames_per_batch=4) as collector:
        state, group = collector.state_dict(), collector._group
        arguments = {"enable_profile": (), "load_state_dict": (state,), "get_distant_attr": ("env",)}
        original = group.call_each
        pid = group.handles[0].process.pid

        def at_once(path, calls, timeout=None, **options):
            os.kill(pid, signal.SIGSTOP)
            return original(path, calls, 0, **options)

        monkeypatch.setattr(group, "call_each", at_once)
        try:
            with pytest.raises(hr.DeadlineExceeded, match=rf"the answer of worker 0 to {name}; "):
                getattr(collector, name)(*arguments.get(name, ("__doc__",)))
        finally:
            os.kill(pid, signal.SIGCONT)
