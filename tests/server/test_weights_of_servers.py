"""collectors CW3, CW4, CW7, CW8: weights through a server."""

import pickle
import threading
import time

import numpy as np
import pytest

import headrace as hr
from headrace.testing import CounterEnv
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


def test_names_of_weights_are_checked(weights):
    with hr.Server({"policy": weights}) as server, hr.Client(server.address) as client:
        with pytest.raises(TypeError, match=r"expected a replay, got weights; use Weights\.receiver"):
            client.replay("policy")
        with pytest.raises(KeyError, match="no weights 'critic'; there are 'policy'"):
            weights.receiver(server.address, "critic").read()
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

    def apply(params, observation):
        value = np.repeat(params["w"][:1], len(observation))
        return value.astype(int) % 4, {"w": value}

    policy = hr.FunctionalPolicy(apply, {"w": np.zeros(2)})
    weights = hr.server.Weights({"w": np.zeros(2)})
    with hr.Server({"policy": weights}) as server:
        receiver = weights.receiver(server.address, "policy")
        with hr.Collector(
            lambda: CounterEnv(9), policy, frames_per_batch=4, track_policy_version=True
        ) as collector:
            collector.register_scheme_receiver({"policy": receiver})
            assert collector.next()["w"].max() == 0
            weights.publish({"w": np.full(2, 3.0)}, version=5)
            until(lambda: receiver.version == 5)
            assert collector.next()["w"].min() == 3
            assert collector.policy_version == 5
        receiver.close()
