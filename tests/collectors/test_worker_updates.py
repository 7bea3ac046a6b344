"""New weights of several workers: some of them, each its own, cascades (collectors CW1 to CW8, CV1, CV2)."""

import itertools
import os
import pickle
import signal
import sys
import threading
from contextlib import contextmanager, nullcontext

import cloudpickle
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import CounterEnv
from headrace.weights import SharedMemory

cloudpickle.register_pickle_by_value(sys.modules[__name__])

WORKERS = 3


def apply(params, observation):
    """The action encodes the weights, as do the extras."""
    value = np.repeat(params["w"][:1], len(observation))
    return value.astype(int) % 4, {"w": value}


def weights(value):
    return {"w": np.full(2, float(value))}


def make(sync=True, policy=None, **options):
    policy = policy or hr.FunctionalPolicy(apply, weights(0))
    options = {
        "track_policy_version": True,
        "num_workers": WORKERS,
        "frames_per_batch": 4 * WORKERS,
        **options,
    }
    return hr.MultiCollector(lambda: CounterEnv(9), policy, sync=sync, **options)


def shown(collector):
    """Number and value of each worker's rows in the next batch of a synchronous collector."""
    batch = collector.next(timeout=40)
    assert (batch["action"] == batch["w"].astype(int) % 4).all()
    for name in ("policy_version", "w"):
        assert (batch[name] == batch[name][:, :1]).all()
    return list(zip(batch["policy_version"][:, 0].tolist(), batch["w"][:, 0].tolist(), strict=True))


def test_some_workers():
    # CW2, CV1: only those change and get the number; the next full update makes all equal again.
    with make() as collector:
        collector.update_policy_weights_(weights(1), worker_ids=1)
        assert collector.policy_version == 1
        assert shown(collector) == [(0, 0), (1, 1), (0, 0)]
        collector.update_policy_weights_(weights(2), worker_ids=[0, 2])
        assert shown(collector) == [(2, 2), (1, 1), (2, 2)]
        collector.update_policy_weights_(weights(3))
        assert shown(collector) == [(3, 3)] * 3
        collector.increment_version()
        assert shown(collector) == [(4, 3)] * 3
        with pytest.raises(ValueError, match="expected workers 0 to 2, got 3"):
            collector.update_policy_weights_(weights(5), worker_ids=[0, 3])
        with pytest.raises(ValueError, match="expected workers 0 to 2, got 7"):
            collector.update_policy_weights_({0: weights(5), 7: weights(5)})
        assert shown(collector) == [(4, 3)] * 3


def test_weights_by_worker():
    # CW1, CV2: each worker its own; two sets never have one number.
    with make() as collector:
        collector.update_policy_weights_({0: weights(5), 2: weights(7)})
        assert collector.policy_version == 2
        assert shown(collector) == [(1, 5), (0, 0), (2, 7)]
        assert collector.get_cached_weights("policy")["w"].tolist() == [7, 7]


class Parts:
    """A policy with two parts, whose weights can be replaced apart; its extras show them."""

    def __init__(self):
        self.head = hr.FunctionalPolicy(apply, weights(0))
        self.critic = hr.FunctionalPolicy(apply, weights(0))

    def __call__(self, observation):
        action, extras = self.head(observation)
        return action, {"w": extras["w"], "c": self.critic(observation)[1]["w"]}

    def state_dict(self):
        return {"head": self.head.state_dict(), "critic": self.critic.state_dict()}

    def load_state_dict(self, state):
        self.head.load_state_dict(state["head"])
        self.critic.load_state_dict(state["critic"])


MODELS = ("policy", "head", "critic")
UPDATES = st.tuples(
    st.sets(st.sampled_from(MODELS), min_size=1),
    st.none() | st.sets(st.integers(0, WORKERS - 1), min_size=1),
)


PARTS = {"head": None, "critic": None}


@pytest.fixture(scope="module")
def in_parts():
    with make(policy=Parts(), weight_sync_schemes=PARTS) as collector:
        yield collector, Book()


class Book:
    """A plain model: the number of each worker's newest set, and the value of each of its parts."""

    def __init__(self):
        self.newest, self.value = 0, 0
        self.workers = [{"number": 0, "head": 0, "critic": 0} for _ in range(WORKERS)]

    def publish(self, models, workers):
        """Returns the weights of the models; a part that is given beside the whole has its own."""
        self.newest += 1
        trees, values = {}, {}
        for model in models:
            self.value += 1
            trees[model] = weights(self.value)
            if model == "policy":
                trees[model] = {part: weights(self.value) for part in ("head", "critic")}
                values = dict.fromkeys(trees[model], self.value) | values
            else:
                values[model] = self.value
        for worker in workers:
            self.workers[worker] |= values | {"number": self.newest}
        return trees


def check_against(book, batch):
    for worker, expected in enumerate(book):
        found = {name: np.unique(batch[name][worker]).tolist() for name in ("policy_version", "w", "c")}
        assert found == {
            "policy_version": [expected["number"]],
            "w": [expected["head"]],
            "c": [expected["critic"]],
        }


@contextmanager
def asked_for_a_batch(collector, late):
    """Within a `with` block a batch is asked for: one worker has not begun it, the others have collected it."""
    pid = collector._group.handles[late].process.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(hr.DeadlineExceeded):
            collector.next(timeout=0)
        changed, assembly = collector._group.status.changed, collector._group.collection._assembly
        with changed:
            assert changed.wait_for(lambda: len(assembly.workers) == WORKERS - 1, 40)
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@given(
    st.lists(st.tuples(st.permutations(MODELS), UPDATES), min_size=1, max_size=5),
    st.none() | st.integers(0, WORKERS - 1),
)
@settings(max_examples=25, deadline=None)
def test_models_of_some_workers_against_a_plain_book(in_parts, script, late):
    # CW1, CW2, CW6, CV1, CV2: weights_dict with worker_ids; one number for all models and workers of a call.
    # CW3: a batch that was asked for before keeps its weights, also in a worker that begins it later.
    collector, book = in_parts
    before = [dict(worker) for worker in book.workers]
    with nullcontext() if late is None else asked_for_a_batch(collector, late):
        for order, (models, worker_ids) in script:
            chosen = range(WORKERS) if worker_ids is None else sorted(worker_ids)
            trees = book.publish([model for model in order if model in models], chosen)
            collector.update_policy_weights_(weights_dict=trees, worker_ids=worker_ids)
            assert collector.policy_version == book.newest
            for model, tree in trees.items():
                np.testing.assert_equal(collector.get_cached_weights(model), tree)
    if late is not None:
        check_against(before, collector.next(timeout=40))
    check_against(book.workers, collector.next(timeout=40))


def test_numbers_and_deaths_while_a_batch_is_asked_for():
    # CW3, CV4, CX3: the batch has one version, also in a worker that is started again meanwhile.
    with make() as collector:
        collector.update_policy_weights_(weights(1))
        with asked_for_a_batch(collector, late=1):
            collector.update_policy_weights_(weights(2))
            collector.increment_version()
            os.kill(collector._group.handles[1].process.pid, signal.SIGKILL)
        assert shown(collector) == [(1, 1)] * 3
        assert collector.statistics().restarts == 1
        assert shown(collector) == [(3, 2)] * 3
        # A state has what was published, also while a batch waits to be handed out.
        collector.update_policy_weights_(weights(4))
        with asked_for_a_batch(collector, late=0):
            collector.update_policy_weights_(weights(5))
        status, batches = collector._group.status, collector._group.collection.batches
        with status.changed:
            assert status.changed.wait_for(lambda: len(batches) == 1, 40)
        state = collector.state_dict()
        for _ in range(2):
            assert [shown(collector), shown(collector)] == [[(4, 4)] * 3, [(5, 5)] * 3]
            assert list(collector.statistics().lag_histogram) == [0]  # CV6
            collector.load_state_dict(state)


@pytest.fixture
def goes_on_to_pause(monkeypatch):
    """Lets a worker that was stopped by a signal go on when it was told to pause, so it pauses first."""

    def goes_on_to_pause(collector, late):
        status = collector._group.status
        wait_for_none = status.wait_for_none

        def go_on(waiting, seconds, event):
            if event.startswith("to pause"):
                os.kill(collector._group.handles[late].process.pid, signal.SIGCONT)
            wait_for_none(waiting, seconds, event)

        monkeypatch.setattr(status, "wait_for_none", go_on)

    return goes_on_to_pause


@pytest.mark.parametrize("late", range(WORKERS))
def test_a_state_of_a_batch_that_one_worker_has_not_begun_keeps_its_weights(late, goes_on_to_pause):
    # CW3, CQ3, CV5: in the collector that goes on, and in one that loads the state.
    with make() as collector:
        collector.update_policy_weights_(weights(1))
        assert shown(collector) == [(1, 1)] * 3
        with asked_for_a_batch(collector, late):
            collector.update_policy_weights_(weights(2), worker_ids=[0, 2])
            collector.update_policy_weights_(weights(3), worker_ids=1)
            collector.increment_version()
            goes_on_to_pause(collector, late)
            state = collector.state_dict()
            again = collector.state_dict()
        expected = [[(1, 1)] * 3, [(4, 2), (4, 3), (4, 2)]]
        assert [shown(collector), shown(collector)] == expected
        for each in (state, again, pickle.loads(pickle.dumps(state))):
            collector.load_state_dict(each)
            assert collector.policy_version == 4
            assert collector.get_cached_weights("policy")["w"].tolist() == [3, 3]
            assert [shown(collector), shown(collector)] == expected
            collector.update_policy_weights_(weights(5))
            assert shown(collector) == [(5, 5)] * 3
    with make() as collector:
        collector.load_state_dict(state)
        os.kill(collector._group.handles[late].process.pid, signal.SIGKILL)
        assert [shown(collector), shown(collector)] == expected


@pytest.mark.parametrize("order", list(itertools.permutations(("policy", "head"))))
def test_a_part_beside_the_whole_has_its_own_weights_in_this_process_too(order):
    # CW6
    trees = {"policy": {"head": weights(1), "critic": weights(1)}, "head": weights(2)}
    with hr.Collector(
        lambda: CounterEnv(9), Parts(), frames_per_batch=4, weight_sync_schemes=PARTS
    ) as collector:
        collector.update_policy_weights_(weights_dict={model: trees[model] for model in order})
        batch = collector.next()
    assert (batch["w"].tolist(), batch["c"].tolist()) == ([[2.0] * 4], [[1.0] * 4])


def test_workers_by_their_device():
    # CW2: a device, or a list of devices.
    pytest.importorskip("torch")
    with make(policy_device=["cpu", "cpu", None]) as collector:
        collector.update_policy_weights_(weights(1), worker_ids="cpu")
        assert shown(collector) == [(1, 1), (1, 1), (0, 0)]
        with pytest.raises(ValueError, match="'cuda:3'; the devices are cpu, cpu, None"):
            collector.update_policy_weights_(weights(1), worker_ids=["cuda:3"])


class Gated(CounterEnv):
    """Stops in the middle of a rollout until it may go on."""

    path = None

    def step(self, action):
        if self.step_count == 1 and self.episode == 0:
            with open(self.path + ".in", "w"):
                pass
            with open(self.path) as gate:
                gate.read()
        return super().step(action)


def gated(path):
    env = Gated(9)
    env.path = path
    return env


@pytest.mark.parametrize("sync", [True, False])
def test_when_it_takes_effect(sync, tmp_path):
    # CW3: synchronous from the first row of the next batch, asynchronous from the worker's next step.
    path = str(tmp_path / "gate")
    os.mkfifo(path)
    os.mkfifo(path + ".in")
    policy = hr.FunctionalPolicy(apply, weights(0))
    with hr.MultiCollector([lambda: gated(path)], policy, sync=sync, frames_per_batch=4) as collector:
        batches = []
        thread = threading.Thread(target=lambda: batches.append(collector.next(timeout=40)))
        thread.start()
        with open(path + ".in"):
            pass  # The worker is in its second step.
        collector.update_policy_weights_(weights(1))
        with open(path, "w"):
            pass
        thread.join()
        assert batches[0]["policy_version"].tolist() == [[0, 0, 0, 0] if sync else [0, 0, 1, 1]]
        assert batches[0]["w"].tolist() == [[0, 0, 0, 0] if sync else [0, 0, 1, 1]]
        if sync:
            assert collector.next(timeout=40)["policy_version"].tolist() == [[1, 1, 1, 1]]


def test_mirroring_at_each_batch():
    # CW5: before each batch is asked for; a version is used only if the arrays differ from those published last.
    policy = hr.FunctionalPolicy(apply, {"w": np.array([0.0, np.nan])})
    with make(policy=policy, update_at_each_batch=True) as collector:
        assert [shown(collector) for _ in range(2)] == [[(0, 0)] * 3] * 2
        policy.params["w"][0] = 5
        assert [shown(collector) for _ in range(2)] == [[(1, 5)] * 3] * 2
        collector.update_policy_weights_(weights(6))
        assert [shown(collector) for _ in range(2)] == [[(3, 5)] * 3] * 2
        collector.update_policy_weights_(worker_ids=0)
        assert shown(collector) == [(5, 5)] * 3
        assert collector.policy_version == 5
    with pytest.raises(ValueError, match="update_at_each_batch"):
        hr.AsyncCollector(
            lambda: CounterEnv(9),
            policy_factory=lambda: policy,
            frames_per_batch=4,
            update_at_each_batch=True,
        )


def test_a_cascade():
    # CW8: what a collector receives goes on to its workers, with the publisher's numbers.
    with SharedMemory(weights(0)) as scheme, make(track_policy_version="int") as collector:
        scheme.publish(weights(2), version=40)
        collector.register_scheme_receiver({"policy": scheme.receiver()})
        assert collector.policy_version == 40
        assert shown(collector) == [(40, 2)] * 3
        scheme.publish(weights(3))
        assert shown(collector) == [(41, 3)] * 3  # Each request looks.


def test_a_cascade_while_the_workers_run():
    # CW8: nobody has to ask for a batch; a thread passes the weights on.
    with SharedMemory(weights(0)) as scheme, make(sync=False) as collector:
        collector.register_scheme_receiver({"policy": scheme.receiver()})
        scheme.publish(weights(3), version=7)
        received = threading.Event()
        follow = collector._weights.publish

        def publish(*args):
            follow(*args)
            received.set()

        collector._weights.publish = publish
        scheme.publish(weights(4), version=9)
        assert received.wait(40)
        while (batch := collector.next(timeout=40))["policy_version"].min() < 9:
            assert set(batch["policy_version"].ravel().tolist()) <= {0, 7, 9}
        assert (batch["w"] == 4).all()
    assert "headrace-weights" not in {thread.name for thread in threading.enumerate()}


class StuckReceiver:
    """A receiving end whose server does not answer until it is let go."""

    def __init__(self):
        self.version, self.is_read, self.go_on = 1, threading.Event(), threading.Event()

    def read(self):
        self.is_read.set()
        assert self.go_on.wait(40)
        return 1, weights(1)

    def close(self):
        pass


def test_shutdown_does_not_wait_for_a_receiver_that_does_not_answer(monkeypatch, caplog):
    # CQ7
    monkeypatch.setattr("headrace.collectors.updates.following._CLOSE_SECONDS", 0.05)
    receiver = StuckReceiver()
    collector = make(sync=False, num_workers=1)
    try:
        collector.register_scheme_receiver({"policy": receiver}, synchronize_weights=False)
        receiver.version = 2
        assert receiver.is_read.wait(40)
        collector.shutdown()
        assert "a receiver of weights has not answered for" in caplog.text
    finally:
        receiver.go_on.set()
    for thread in threading.enumerate():
        if thread.name == "headrace-weights":
            thread.join(40)
            assert not thread.is_alive()


def test_models_with_a_publishing_end_of_their_own():
    # CW7: the workers read it; the versions go on from its own.
    with SharedMemory(weights(0)) as scheme:
        scheme.publish(weights(2), version=5)
        with make(weight_sync_schemes={"policy": scheme}) as collector:
            assert shown(collector) == [(5, 2)] * 3
            collector.update_policy_weights_(weights(3))
            assert scheme.version == 6
            assert shown(collector) == [(6, 3)] * 3
            with pytest.raises(TypeError, match="worker_ids"):
                collector.update_policy_weights_(weights(3), worker_ids=1)
            assert collector.get_cached_weights("policy")["w"].tolist() == [3, 3]


def test_sets_of_another_publisher_on_an_end_that_the_workers_read():
    # CV1, CV2, CV3, CV4, CV6, CW7: the newest number is that of the set that acts; no later set has it again.
    with SharedMemory(weights(0)) as scheme, make(weight_sync_schemes={"policy": scheme}) as collector:
        collector.update_policy_weights_(weights(1))
        assert scheme.publish(weights(2)) == 2
        assert (collector.policy_version, collector.get_policy_version()) == (2, 2)
        assert shown(collector) == [(2, 2)] * 3
        collector.increment_version()
        assert collector.policy_version == 3
        assert shown(collector) == [(3, 2)] * 3
        assert scheme.publish(weights(5), version=5) == 5
        state = collector.state_dict()
        collector.update_policy_weights_(weights(6))
        assert (scheme.version, collector.policy_version) == (6, 6)
        assert shown(collector) == [(6, 6)] * 3
        assert list(collector.statistics().lag_histogram) == [0]
    assert collector.policy_version == 6
    with SharedMemory(weights(0)) as scheme, make(weight_sync_schemes={"policy": scheme}) as collector:
        scheme.publish(weights(9), version=9)
        collector.load_state_dict(state)  # CV5: what the state has acts, until another set is published.
        assert collector.policy_version == 5
        assert shown(collector) == [(5, 5)] * 3
        assert scheme.publish(weights(10)) == 10
        assert collector.policy_version == 10
        assert shown(collector) == [(10, 10)] * 3


def test_a_synchronous_batch_has_no_lag_where_workers_learn_late_of_a_set():
    # CV6: as over a connection to a server, where the number is known at once and the set after a message.
    class Late(SharedMemory):
        sets_on_their_way = 0

        @property
        def version(self):
            return super().version + self.sets_on_their_way

    with Late(weights(0)) as scheme, make(weight_sync_schemes={"policy": scheme}) as collector:
        scheme.sets_on_their_way = 1
        assert shown(collector) == [(0, 0)] * 3
        assert collector.policy_version == 1
        assert list(collector.statistics().lag_histogram) == [0]


def test_a_part_that_another_publisher_updates_takes_no_number_of_the_whole():
    # CV2, CW6: two sets never have one number.
    with (
        SharedMemory(weights(0)) as scheme,
        make(policy=Parts(), weight_sync_schemes={"critic": scheme}) as collector,
    ):
        assert scheme.publish(weights(1)) == 1
        assert [version for version, _ in shown(collector)] == [1] * 3
        collector.update_policy_weights_(weights_dict={"policy": {"head": weights(2), "critic": weights(2)}})
        assert collector.policy_version == 2
        assert shown(collector) == [(2, 2)] * 3


def test_a_policy_that_is_not_updated():
    with make(weight_sync_schemes={"policy": hr.weights.NoSync()}) as collector:
        collector.update_policy_weights_(weights(3))
        assert collector.policy_version == 0
        assert shown(collector) == [(0, 0)] * 3


def test_objects_of_this_process():
    # CW6: a collector with workers has the policy that it was made with.
    policy = hr.FunctionalPolicy(apply, weights(0))
    with make(policy=policy) as collector:
        assert collector.get_model("policy") is policy
        with pytest.raises(ValueError, match="'actor'"):
            collector.get_model("actor")
    with hr.AsyncCollector(
        lambda: CounterEnv(9), policy_factory=lambda: policy, frames_per_batch=4
    ) as collector:
        with pytest.raises(ValueError, match="map_fn"):
            collector.get_model("policy")


def test_a_part_that_a_factory_does_not_make():
    # CW6: only the worker can tell.
    with pytest.raises(ValueError, match="weight_sync_schemes.*'critic'"):
        hr.AsyncCollector(
            lambda: CounterEnv(9),
            policy_factory=lambda: hr.FunctionalPolicy(apply, weights(0)),
            frames_per_batch=4,
            weight_sync_schemes={"critic": None},
        )


def test_a_worker_that_is_dead():
    # CW1: the others have the weights; the call does not wait, and raises the death.
    with make(sync=False, restart_workers=False) as collector:
        collector.next(timeout=40)
        os.kill(collector.statistics().workers[1].pid, signal.SIGKILL)
        with pytest.raises(hr.WorkerDied):  # noqa: PT012 - any batch after the death
            while True:
                collector.next(timeout=40)
        with pytest.raises(hr.WorkerDied, match="worker 1"):
            collector.update_policy_weights_(weights(4))
        assert collector.policy_version == 1
        assert collector.get_cached_weights("policy")["w"].tolist() == [4, 4]
        assert [collector._weights._board.newest(worker).number for worker in (0, 2)] == [1, 1]
