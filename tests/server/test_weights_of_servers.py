"""collectors CW3, CW4, CW7, CW8: weights through a server."""

import pickle
import threading
import time
from contextlib import ExitStack

import numpy as np
import pytest

import headrace as hr
from headrace.testing import CounterEnv, in_forked_child
from headrace.weights.protocol import WeightReceiver

JOIN = 30.0


def until(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.002)


@pytest.fixture(params=["tcp", "unix", "token"])
def options(request, tmp_path):
    ways = {"tcp": {}, "token": {"token": "secret"}, "unix": {"address": None, "unix": tmp_path / "s"}}
    return ways[request.param]


@pytest.fixture
def weights():
    with hr.server.Weights({"w": np.zeros((2, 3), np.float32), "b": [np.int64(0)]}) as weights:
        yield weights


def receiver_of(weights, server, options):
    return weights.receiver(server.address, "policy", token=options.get("token"), timeout=10)


def test_a_receiver_reads_what_was_published(weights, options):
    with hr.Server({"policy": weights}, **options) as server:
        receiver = pickle.loads(pickle.dumps(receiver_of(weights, server, options)))
        assert isinstance(receiver, WeightReceiver)
        assert receiver.version == weights.version == 0
        given = {"w": np.full((2, 3), 7, np.float32), "b": [np.int64(5)]}
        assert weights.publish(given) == 1
        given["w"][:] = 99
        version, found = receiver.read()
        assert (version, found["w"].tolist(), found["b"][0]) == (1, [[7] * 3] * 2, 5)
        found["w"][:] = 1
        assert receiver.read()[1]["w"][0, 0] == weights.read()[1]["w"][0, 0] == 7
        assert weights.publish(given, version=40) == 40
        until(lambda: receiver.version == 40)
        receiver.close()
        receiver.close()
        with pytest.raises(hr.Closed):
            receiver.version  # noqa: B018
        with pytest.raises(hr.Closed):
            receiver.read()


def test_a_look_at_the_version_sends_nothing(weights, options):
    """CW4: once the receiver watches."""
    with hr.Server({"policy": weights}, **options) as server:
        receiver = receiver_of(weights, server, options)
        assert receiver.version == 0
        until(lambda: next(iter(server._connections._open))._requests._weights.waiting)
        before = server.statistics().bytes_in
        for _ in range(1000):
            assert receiver.version == 0
        assert server.statistics().bytes_in == before
        receiver.close()


def test_publishing_never_waits_and_sets_are_never_torn(options):
    """CW3, CW7: readers at any moment; the newest set counts, and no backlog is built."""
    weights = hr.server.Weights(np.zeros(100_000))
    with hr.Server({"policy": weights}, **options) as server:
        stop, seen = threading.Event(), []

        def read():
            receiver = receiver_of(weights, server, options)
            while not stop.is_set():
                version, found = receiver.read()
                assert (found == version).all()
                seen.append(version)
            receiver.close()

        threads = [threading.Thread(target=read) for _ in range(2)]
        for thread in threads:
            thread.start()
        for version in range(1, 60):
            weights.publish(np.full(100_000, float(version)))
        until(lambda: len(seen) > 5 and seen[-1] == 59)
        stop.set()
        for thread in threads:
            thread.join(JOIN)


def test_what_cannot_be_published_changes_nothing(weights):
    with pytest.raises(hr.SpecError, match="w: expected float32"):
        weights.publish({"w": np.zeros(2), "b": [np.int64(0)]})
    with pytest.raises(ValueError, match="version: expected more than 0"):
        weights.publish(weights.read()[1], version=0)
    weights.close()
    with pytest.raises(hr.Closed):
        weights.publish(weights.read()[1])
    assert weights.version == 0


def test_a_receiver_finds_a_server_that_comes_back(weights, tmp_path):
    """The last version stays meanwhile; a read waits for the server."""
    options = {"address": None, "unix": tmp_path / "s"}
    with hr.Server({"policy": weights}, **options) as server:
        receiver = receiver_of(weights, server, options)
        assert receiver.version == 0
    assert receiver.version == 0
    weights.publish({"w": np.ones((2, 3), np.float32), "b": [np.int64(1)]})
    with hr.Server({"policy": weights}, **options):
        assert receiver.read()[0] == 1
        until(lambda: receiver.version == 1)
        receiver.close()


def test_a_receiver_follows_a_publisher_that_begins_anew(weights, tmp_path):
    """CW8: a learner that was started again counts from 0. A collector looks for another number, not a larger one."""
    options = {"address": None, "unix": tmp_path / "s"}
    weights.publish(weights.read()[1], version=500)
    with hr.Server({"policy": weights}, **options) as server:
        receiver = receiver_of(weights, server, options)
        assert receiver.version == 500
    with hr.server.Weights(weights.read()[1]) as other, hr.Server({"policy": other}, **options):
        until(lambda: receiver.version == 0)
        other.publish(weights.read()[1])
        until(lambda: receiver.version == 1)
        assert receiver.read()[0] == 1
        receiver.close()


@pytest.mark.parametrize("reads", [True, False])
def test_a_receiver_sees_another_publisher_under_the_same_number(weights, tmp_path, reads):
    """CW8: a learner that was started again is where the last one was. A look shows -1 until its set is read."""
    options = {"address": None, "unix": tmp_path / "s"}
    weights.publish(weights.read()[1])
    with hr.Server({"policy": weights}, **options) as server:
        receiver = receiver_of(weights, server, options)
        if reads:
            assert receiver.read()[0] == 1
        assert receiver.version == 1
    with hr.server.Weights(weights.read()[1]) as other:
        other.publish({"w": np.full((2, 3), 7, np.float32), "b": [np.int64(5)]})
        with hr.Server({"policy": other}, **options):
            until(lambda: receiver.version == -1)
            version, found = receiver.read()
            assert (version, found["w"][0, 0], receiver.version) == (1, 7, 1)
            other.publish(weights.read()[1])
            until(lambda: receiver.version == 2)
            receiver.close()


class LateAnswers:
    """A session whose answer to `read` comes late: `meanwhile` is called before."""

    def __init__(self, session, meanwhile):
        self._session, self._meanwhile = session, meanwhile

    def exchanged(self, request):
        answer = self._session.exchanged(request)
        self._meanwhile()
        return answer

    def __getattr__(self, name):
        return getattr(self._session, name)


def test_a_set_that_comes_late_is_not_taken_for_the_newest(weights, tmp_path):
    """CW8: the thread that waits for news has seen another publisher while the old set was on its way."""
    options = {"address": None, "unix": tmp_path / "s"}
    with hr.server.Weights(weights.read()[1]) as other, ExitStack() as servers:
        other.publish({"w": np.full((2, 3), 7, np.float32), "b": [np.int64(5)]})
        weights.publish(weights.read()[1])
        first = servers.enter_context(hr.Server({"policy": weights}, **options))
        receiver = receiver_of(weights, first, options)
        assert receiver.version == 1

        def replace_the_server():
            first.stop()
            servers.enter_context(hr.Server({"policy": other}, **options))
            until(lambda: receiver.version == -1)

        session = receiver._session
        receiver._session = LateAnswers(session, replace_the_server)
        assert receiver.read()[0] == 1
        receiver._session = session
        assert receiver.version == -1
        assert receiver.read()[1]["w"][0, 0] == 7
        assert receiver.version == 1
        receiver.close()


def test_a_receiver_that_comes_back_to_its_publisher_shows_its_number(weights, tmp_path):
    """The set was not replaced: a look that showed -1 would make a collector read it again."""
    options = {"address": None, "unix": tmp_path / "s"}
    with hr.Server({"policy": weights}, **options) as server:
        receiver = receiver_of(weights, server, options)
        assert receiver.version == 0
    shown = set()
    with hr.Server({"policy": weights}, **options):
        assert receiver.read()[0] == 0
        shown.add(receiver.version)
        weights.publish(weights.read()[1])
        until(lambda: shown.add(receiver.version) or receiver.version == 1)
        receiver.close()
    assert shown == {0, 1}


@pytest.mark.parametrize("kind", ["inline", "workers"])
def test_a_collector_takes_the_set_of_another_publisher_under_the_same_number(kind, tmp_path):
    """CW8: a learner that was started again publishes other weights under the number of the last ones."""
    options = {"address": None, "unix": tmp_path / "s"}
    made = {"frames_per_batch": 4, "track_policy_version": True}
    if kind == "inline":
        collector = hr.Collector(lambda: CounterEnv(9), weighted_policy(), **made)
    else:
        collector = hr.MultiCollector([lambda: CounterEnv(9)], weighted_policy(), sync=True, **made)
    first, second = (hr.server.Weights({"w": np.zeros(2)}) for _ in range(2))
    for value, weights in enumerate((first, second), start=1):
        weights.publish({"w": np.full(2, float(value))}, version=5)
    with collector:
        with hr.Server({"policy": first}, **options) as server:
            receiver = first.receiver(server.address, "policy", timeout=10)
            collector.register_scheme_receiver({"policy": receiver})
            until(lambda: collector.next(20)["w"].min() == 1)
            assert collector.policy_version == 5
        with hr.Server({"policy": second}, **options):
            until(lambda: collector.next(20)["w"].min() == 2)
            assert collector.policy_version == 5
        receiver.close()


def weighted_policy():
    """Acts by its weights, which rows carry."""

    def apply(params, observation):
        value = np.repeat(params["w"][:1], len(observation))
        return value.astype(int) % 4, {"w": value}

    return hr.FunctionalPolicy(apply, {"w": np.zeros(2)})


def test_a_forked_child_is_not_shown_an_old_version(weights, options):
    """CL9: no thread of the child would learn of newer ones."""
    with hr.Server({"policy": weights}, **options) as server:
        receiver, unused = (receiver_of(weights, server, options) for _ in range(2))
        assert receiver.version == 0

        def in_child():
            for use in (lambda: receiver.version, receiver.read):
                with pytest.raises(hr.Closed, match="forked"):
                    use()
            assert (unused.version, unused.read()[0]) == (0, 0)
            unused.close()

        in_forked_child(in_child)
        assert receiver.version == 0
        receiver.close()
        unused.close()


def test_a_forked_child_closes_a_receiver_whose_lock_was_held(weights, options):
    """CL9: the child waits for no thread that it lacks, and the parent's receiver goes on."""
    with hr.Server({"policy": weights}, **options) as server:
        receiver = receiver_of(weights, server, options)
        assert receiver.version == 0
        with receiver._lock:
            in_forked_child(receiver.close)
        weights.publish(weights.read()[1])
        until(lambda: receiver.version == 1)
        receiver.close()


def test_a_receiver_outlives_a_server_without_its_weights(weights, tmp_path):
    options = {"address": None, "unix": tmp_path / "s"}
    with hr.Server({"policy": weights}, **options) as server:
        receiver = receiver_of(weights, server, options)
        assert receiver.version == 0
    with hr.BatchQueue({"x": 0}, 2) as queue, hr.Server({"policy": queue}, **options):
        with pytest.raises(KeyError, match="no weights 'policy'; there are none"):
            receiver.read()
    weights.publish(weights.read()[1])
    with hr.Server({"policy": weights}, **options):
        until(lambda: receiver.version == 1)
        receiver.close()


@pytest.mark.parametrize(
    "others",
    [
        {"w": np.zeros((3, 2), np.float32), "b": [np.int64(0)]},
        {"w": np.zeros((2, 3), np.int32), "b": [np.int64(0)]},
        {"v": np.zeros((2, 3), np.float32), "b": [np.int64(0)]},
        {"w": np.zeros((2, 3), np.float32)},
    ],
)
def test_weights_of_another_layout_are_refused(weights, tmp_path, others):
    """Server CL8: also those of the same size."""
    options = {"address": None, "unix": tmp_path / "s"}
    with hr.Server({"policy": weights}, **options) as server:
        receiver = receiver_of(weights, server, options)
        assert receiver.read()[0] == 0
    with hr.server.Weights(others) as other, hr.Server({"policy": other}, **options) as server:
        with pytest.raises(hr.SpecError, match="'policy'.*other names, shapes or dtypes"):
            receiver.read()
        assert other.receiver(server.address, "policy").read()[0] == 0
        receiver.close()


@pytest.mark.parametrize("make", [hr.server.Weights, hr.weights.SharedMemory])
def test_a_version_is_an_integer_that_a_row_can_carry(make):
    with make({"w": np.zeros(2)}) as weights:
        for wrong in (True, 1.5, "3"):
            with pytest.raises(TypeError, match="version: expected an integer"):
                weights.publish({"w": np.ones(2)}, version=wrong)
        for wrong in (0, -1, 2**31, 2**70):
            with pytest.raises(ValueError, match="version: expected"):
                weights.publish({"w": np.ones(2)}, version=wrong)
        assert weights.version == 0
        assert weights.publish({"w": np.ones(2)}, version=np.int64(2**31 - 1)) == 2**31 - 1
        with pytest.raises(ValueError, match="at most 2147483647"):
            weights.publish({"w": np.ones(2)})


def test_names_of_weights_are_checked(weights):
    with hr.Server({"policy": weights}) as server, hr.Client(server.address) as client:
        with pytest.raises(TypeError, match=r"expected a replay, got weights; use Weights\.receiver"):
            client.replay("policy")
        with pytest.raises(KeyError, match="no weights 'critic'; there are 'policy'"):
            weights.receiver(server.address, "critic").read()
        with pytest.raises(TypeError, match="name: expected"):
            weights.receiver(server.address, 3)
        assert client.statistics().served == {}


def test_a_receiver_that_is_gone_leaves_no_wait(weights):
    """LP1"""
    with hr.Server({"policy": weights}) as server:
        receiver = weights.receiver(server.address, "policy")
        assert receiver.version == 0
        until(lambda: server._connections.weights["policy"]._waiting)
        receiver.close()
        until(lambda: not server._connections.weights["policy"]._waiting)
        assert weights.publish(weights.read()[1]) == 1


def test_a_collector_takes_its_weights_from_a_server():
    """CW8: the receiver works where those of other schemes do, at each step."""
    weights = hr.server.Weights({"w": np.zeros(2)})
    with hr.Server({"policy": weights}) as server:
        receiver = weights.receiver(server.address, "policy")
        with hr.Collector(
            lambda: CounterEnv(9), weighted_policy(), frames_per_batch=4, track_policy_version=True
        ) as collector:
            collector.register_scheme_receiver({"policy": receiver})
            assert collector.next()["w"].max() == 0
            weights.publish({"w": np.full(2, 3.0)}, version=5)
            until(lambda: receiver.version == 5)
            assert collector.next()["w"].min() == 3
            assert collector.policy_version == 5
        receiver.close()
