"""Calls of other threads while an inline collector is in the middle of a rollout: answered between two steps (CQ1)."""

import logging
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import headrace as hr
import headrace.collectors.collector as collector_module
from headrace.testing import CounterEnv

STEPS = 50


class Held(CounterEnv):
    """At some of its steps it says so, and waits until it may go on."""

    def __init__(self, *steps):
        super().__init__(7)
        self.begun = {step: threading.Event() for step in steps}
        self.may_go = {step: threading.Event() for step in steps}
        self.steps = 0

    def step(self, action):
        self.steps += 1
        if self.steps in self.begun:
            self.begun[self.steps].set()
            assert self.may_go[self.steps].wait(40)
        return super().step(action)

    def release(self):
        for event in self.may_go.values():
            event.set()


def act(observation):
    return observation[:, 2] % 4


@pytest.fixture
def threads():
    with ThreadPoolExecutor(4) as pool:
        yield pool


@pytest.fixture
def held(threads):
    """Makes a collector in the middle of step 5 of its first rollout, and the future of its batch."""
    made = []

    def make(**options):
        env = Held(5, 10)
        collector = hr.Collector(env, act, frames_per_batch=STEPS, **options)
        made.append((env, collector))
        batch = threads.submit(collector.next)
        assert env.begun[5].wait(20)
        return env, collector, batch

    yield make
    for env, collector in made:
        env.release()
        collector.shutdown(20)


def asked(collector, threads, call):
    """Returns the future of a call in another thread that waits for the end of a step."""
    waiting = threading.Event()
    turns, enter = collector._turns, collector._turns._wait

    def watched(*arguments):
        waiting.set()
        return enter(*arguments)

    turns._wait = watched
    future = threads.submit(call)
    assert waiting.wait(20)
    turns._wait = enter
    return future


QUESTIONS = {
    "state": (lambda collector: collector.state_dict()["rollout"]["turn"]["left"], STEPS - 5),
    "env": (lambda collector: collector.getattr_env("step_count"), 5),
    "policy": (lambda collector: collector.getattr_policy("__name__"), "act"),
    "path": (lambda collector: collector.get_distant_attr("env.steps"), [5]),
    "call": (lambda collector: collector.map_fn("getattr_env", [["steps"]]), [5]),
    "profile": (lambda collector: collector.disable_profile(), None),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_takes_one_step(name, held, threads):
    """CQ1: the rollout goes on after it, and nothing of it is lost."""
    ask, expected = QUESTIONS[name]
    env, collector, batch = held()
    if name == "profile":
        collector._profile = object()  # One that is wanted: else nothing is asked.
        collector._is_recorded = lambda config: False
    answer = asked(collector, threads, lambda: ask(collector))
    assert not answer.done()
    env.may_go[5].set()
    assert answer.result(20) == expected
    assert env.begun[10].wait(20)  # The batch is under way still.
    env.may_go[10].set()
    assert batch.result(20)["t"][0].tolist() == [step % 7 for step in range(STEPS)]


def test_a_state_of_the_middle_of_a_batch(held, threads):
    """CQ3: the batch of another thread is that which the saved collector goes on with, bit for bit."""
    env, collector, batch = held()
    answer = asked(collector, threads, collector.state_dict)
    env.may_go[5].set()
    state = pickle.loads(pickle.dumps(answer.result(20)))
    env.may_go[10].set()
    expected = [batch.result(20), collector.next()]
    with hr.Collector(CounterEnv(7), act, frames_per_batch=STEPS) as other:
        other.load_state_dict(state)
        for one in expected:
            again = other.next()
            for name in one:
                np.testing.assert_array_equal(one[name], again[name], err_msg=name)
        assert other.statistics().frames == 2 * STEPS


@pytest.mark.parametrize("reason", ["seed", "postproc", "load"])
def test_some_states_wait_for_the_end_of_the_batch(reason, held, threads, make_replay):
    """CQ3, CS2, CR10: where a rollout under way has no state, and where a state is loaded."""
    options = {}
    if reason == "postproc":
        replay = make_replay(hr.collectors.signature(lambda: CounterEnv(7), act))
        options = {"replay_buffer": replay, "postproc": lambda batch: batch}
    env, collector, batch = held(**options)
    if reason == "seed":
        collector.set_seed(5)
    with hr.Collector(CounterEnv(7), act, frames_per_batch=STEPS) as other:
        state = other.state_dict()
    call = (lambda: collector.load_state_dict(state)) if reason == "load" else collector.state_dict
    answer = asked(collector, threads, call)
    env.may_go[5].set()
    assert env.begun[10].wait(20)
    assert not answer.done()
    env.may_go[10].set()
    saved = answer.result(20)
    assert batch.result(20).frames == STEPS
    if reason == "seed":
        assert env.seeds[-1] == 5
    if reason != "load":
        assert saved["rollout"] is None


@pytest.mark.parametrize("name", ["state_dict", "load_state_dict", "start", "getattr_env", "getattr_policy"])
def test_a_step_that_lasts_too_long(name, held, monkeypatch, make_replay):
    """CQ1: a limit, and the name of the call."""
    monkeypatch.setattr(collector_module, "_STAND_SECONDS", 0.05)
    replay = make_replay(hr.collectors.signature(lambda: CounterEnv(7), act))
    env, collector, batch = held(replay_buffer=replay)
    calls = {
        "state_dict": collector.state_dict,
        "load_state_dict": lambda: collector.load_state_dict({}),
        "start": collector.start,
        "getattr_env": lambda: collector.getattr_env("steps"),
        "getattr_policy": lambda: collector.getattr_policy("__name__"),
    }
    with pytest.raises(hr.DeadlineExceeded, match=rf"{name}: waited [\d.]+ s"):
        calls[name]()
    env.release()
    assert batch.result(20).frames == STEPS
    assert collector.getattr_env("steps") == STEPS


def test_a_wait_for_another_batch_is_told(held, threads, caplog, monkeypatch):
    """CB10: without a limit, and with a word in the log."""
    monkeypatch.setattr("headrace.waits.TOLD_AFTER", 0.0)
    env, collector, batch = held()
    with caplog.at_level(logging.WARNING):
        other = asked(collector, threads, collector.next)
        env.release()
        assert {batch.result(20)["t"][0, 0], other.result(20)["t"][0, 0]} == {0, STEPS % 7}
    assert "next: waited" in caplog.text


def test_shutdown_ends_the_batch_of_another_thread(held, threads):
    """CQ7: between two steps; environments are closed once, and not in the middle of a step."""
    env, collector, batch = held()
    other = asked(collector, threads, collector.next)
    ends = [asked(collector, threads, collector.shutdown) for _ in range(2)]
    assert env.closed == 0
    env.may_go[5].set()
    for end in ends:
        end.result(20)
    for each in (batch, other):
        with pytest.raises(hr.Closed):
            each.result(20)
    assert (env.steps, env.closed) == (5, 1)
    assert collector.statistics().frames_discarded == 5
    for call in (collector.next, collector.state_dict, lambda: collector.getattr_env("steps")):
        with pytest.raises(hr.Closed):
            call()


def test_shutdown_while_a_step_lasts(held):
    """CQ7: after its limit the collector is as it was."""
    env, collector, batch = held()
    with pytest.raises(hr.DeadlineExceeded, match=r"shutdown: waited [\d.]+ s for the end of a step"):
        collector.shutdown(0.05)
    env.release()
    assert batch.result(20).frames == STEPS
    assert env.closed == 0


@pytest.mark.parametrize("name", ["shutdown", "state_dict", "next"])
def test_calls_that_are_refused_in_a_step(name):
    collector = hr.Collector(
        lambda: CounterEnv(7), lambda observation: getattr(collector, name)(), frames_per_batch=4
    )
    with collector, pytest.raises(RuntimeError, match=f"{name}: called by the policy"):
        collector.next()


def test_questions_of_the_policy_are_answered_in_its_step():
    seen = []

    def policy(observation):
        seen.append(collector.map_fn("getattr_env", [["step_count"]]))
        return act(observation)

    with hr.Collector(lambda: CounterEnv(7), policy, frames_per_batch=4) as collector:
        collector.next()
    assert seen == [[0], [1], [2], [3]]


def test_one_of_several_threads_starts(make_replay, threads, monkeypatch):
    """CF4: the other call is refused, and there is one run."""
    replay = make_replay(hr.collectors.signature(lambda: CounterEnv(7), act))
    runs, others = [], []

    def run(rollouts):
        others.append(asked(collector, threads, collector.start))
        runs.append(FreeRun(rollouts))
        return runs[-1]

    FreeRun = collector_module.FreeRun
    monkeypatch.setattr(collector_module, "FreeRun", run)
    with hr.Collector(lambda: CounterEnv(7), act, frames_per_batch=4, replay_buffer=replay) as collector:
        collector.start()
        with pytest.raises(RuntimeError, match="started already"):
            others[0].result(20)
    assert len(runs) == 1


def test_a_run_that_starts_while_a_state_waits_for_its_turn(make_replay, monkeypatch):
    """CQ3, CF4: the run stands still for it, too."""
    replay = make_replay(hr.collectors.signature(lambda: CounterEnv(7), act))
    with hr.Collector(
        lambda: CounterEnv(7), act, frames_per_batch=4, replay_buffer=replay, postproc=lambda batch: batch
    ) as collector:
        collect, state_dict, stood = collector._turns.collect, collector._rollouts.state_dict, []

        def collect_later(*arguments):
            collector.start()
            return collect(*arguments)

        def watched():
            stood.append(collector._run._stands)
            return state_dict()

        monkeypatch.setattr(collector._turns, "collect", collect_later)
        monkeypatch.setattr(collector._rollouts, "state_dict", watched)
        collector.state_dict()
    assert stood == [True]
