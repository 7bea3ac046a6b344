"""Weights through the object store."""

import sys
import time

import cloudpickle
import numpy as np
import pytest

import headrace as hr

cloudpickle.register_pickle_by_value(sys.modules[__name__])
ray = pytest.importorskip("ray")
pytestmark = [pytest.mark.usefixtures("cluster"), pytest.mark.timeout(180)]


def weights(value):
    return {"layer": {"w": np.full((2, 3), value, np.float32)}, "bias": np.full(5, value, np.int64)}


def equal(one, other):
    assert one["layer"]["w"].dtype == other["layer"]["w"].dtype
    np.testing.assert_array_equal(one["layer"]["w"], other["layer"]["w"])
    np.testing.assert_array_equal(one["bias"], other["bias"])


def seen_within(receiver, version, seconds=40):
    end = time.monotonic() + seconds
    while receiver.version != version:
        assert time.monotonic() < end
        time.sleep(0.01)


def test_publish_does_not_wait_for_ever_for_its_actor(monkeypatch):
    # CW7; the number is not used for other weights later: the actor may have got the set.
    scheme = hr.weights.Ray(weights(0))
    monkeypatch.setattr("headrace.weights.ray._READ_SECONDS", 0.0)
    with pytest.raises(hr.DeadlineExceeded, match="the actor that keeps the weights"):
        scheme.publish(weights(1))
    monkeypatch.undo()
    assert scheme.publish(weights(2)) == 2
    equal(scheme.receiver().read()[1], weights(2))


def test_receivers_see_whole_sets_here_and_in_actors():
    # CW7, CY2
    class Reader:
        def __init__(self, receiver):
            self.receiver = receiver

        def read(self):
            return self.receiver.read()

    first = weights(0)
    scheme = hr.weights.Ray(first)
    receiver = scheme.receiver()
    reader = ray.remote(Reader).options(num_cpus=0).remote(receiver)
    assert (scheme.version, receiver.version) == (0, 0)
    assert scheme.publish(weights(1)) == 1
    changed = weights(7)
    assert scheme.publish(changed, version=7) == 7
    changed["bias"][:] = 9  # Returning means published.
    version, found = receiver.read()
    assert version == 7
    equal(found, weights(7))
    found["bias"][:] = 3  # The caller's own.
    seen_within(receiver, 7)
    version, found = ray.get(reader.read.remote(), timeout=40)
    assert version == 7
    equal(found, weights(7))
    scheme.close()
    equal(receiver.read()[1], weights(7))
    receiver.close()
    ray.kill(reader)


def test_wrong_sets_and_calls_are_refused():
    # CW1, CW7
    with hr.weights.Ray(weights(0)) as scheme:
        receiver = scheme.receiver()
        with pytest.raises(hr.SpecError, match="bias"):
            scheme.publish({"layer": weights(1)["layer"], "bias": np.zeros(4, np.int64)})
        with pytest.raises(ValueError, match="more than 0"):
            scheme.publish(weights(1), version=0)
        assert receiver.read()[0] == 0
    receiver.close()
    for call in (
        lambda: scheme.publish(weights(1)),
        scheme.receiver,
        receiver.read,
        lambda: receiver.version,
    ):
        with pytest.raises(hr.Closed):
            call()
