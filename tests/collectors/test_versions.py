"""Versions of weights: numbering, tracking, state (collectors CV1 to CV5)."""

import sys
import uuid

import cloudpickle
import numpy as np
import pytest

import headrace as hr
from headrace.testing import CounterEnv

cloudpickle.register_pickle_by_value(sys.modules[__name__])


def two_workers(create_env_fn, policy, **options):
    """A synchronous collector of two workers with one environment each."""
    options["frames_per_batch"] *= 2
    return hr.MultiCollector([create_env_fn] * 2, policy, sync=True, **options)


KINDS = [hr.Collector, hr.AsyncCollector, two_workers]


def policy(value=0.0):
    return hr.FunctionalPolicy(apply, {"w": np.array([value])})


def apply(params, observation):
    return np.zeros(len(observation), int), {"w": np.repeat(params["w"], len(observation))}


def make(kind, own=None, **options):
    return kind(lambda: CounterEnv(9), own or policy(), frames_per_batch=4, **options)


def newest_batch(collector):
    """The next batch with the newest weights; a worker that runs ahead may have collected up to three before it."""
    for _ in range(4 if isinstance(collector, hr.AsyncCollector) else 1):
        batch = collector.next(timeout=40)
        if (batch["policy_version"] == collector._versions.newest).all():
            break
    return batch


@pytest.mark.parametrize("kind", KINDS)
def test_versions_that_are_not_tracked(kind):
    # CV3: False is the default; rows carry their numbers all the same (CV2).
    with make(kind) as collector:
        assert collector.policy_version is None
        assert collector.get_policy_version() is None
        for call in (collector.increment_version, lambda: collector.version_id(0)):
            with pytest.raises(RuntimeError, match="track_policy_version=True"):
                call()
        collector.update_policy_weights_({"w": np.ones(1)})
        assert (newest_batch(collector)["policy_version"] == 1).all()
        assert collector.policy_version is None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("track", [True, "int"])
def test_numbers(kind, track):
    # CV1, CV3.
    with make(kind, track_policy_version=track, num_envs=2) as collector:
        for number in range(3):
            assert collector.policy_version == collector.get_policy_version() == number
            assert collector.version_id(number) == number
            collector.update_policy_weights_()
        with pytest.raises(ValueError, match="-1"):
            collector.version_id(-1)


@pytest.mark.parametrize("kind", KINDS)
def test_uuids(kind):
    # CV3: a uuid4 string for each number; version_id translates stamps.
    with make(kind, track_policy_version="uuid") as collector:
        seen = []
        for number in range(4):
            version = collector.policy_version
            assert uuid.UUID(version).version == 4
            assert collector.version_id(number) == version == collector.get_policy_version()
            seen.append(version)
            collector.update_policy_weights_()
        assert len(set(seen)) == 4
        stamp = newest_batch(collector)["policy_version"][0, 0]
        assert collector.version_id(int(stamp)) == collector.policy_version
    assert hr.PolicyVersion("uuid").version != hr.PolicyVersion("uuid").version


def test_another_tracking_is_refused():
    # CV3.
    for track in ("float", 1, 0, None, [True]):
        with pytest.raises(ValueError, match="track_policy_version: expected"):
            make(hr.Collector, track_policy_version=track)
    with pytest.raises(ValueError, match="kind"):
        hr.PolicyVersion("float")


@pytest.mark.parametrize("kind", KINDS)
def test_collectors_that_share_a_numbering(kind):
    # CV3: a number names one set everywhere.
    shared = hr.PolicyVersion()
    assert shared.kind == "int"
    with make(kind, track_policy_version=shared) as one, make(kind, track_policy_version=shared) as two:
        one.update_policy_weights_()
        two.update_policy_weights_()
        one.update_policy_weights_()
        assert (one.policy_version, two.policy_version, shared.version) == (3, 2, 3)
        assert (newest_batch(one)["policy_version"] == 3).all()
        assert (newest_batch(two)["policy_version"] == 2).all()
        assert shared.increment() == 4
        two.update_policy_weights_()
        assert two.policy_version == 5


@pytest.mark.parametrize("kind", KINDS)
def test_a_number_without_new_weights(kind):
    # CV4.
    with make(kind, policy(3.0), track_policy_version=True) as collector:
        assert (newest_batch(collector)["policy_version"] == 0).all()
        collector.increment_version()
        assert collector.policy_version == 1
        batch = newest_batch(collector)
        assert (batch["policy_version"] == 1).all()
        assert (batch["w"] == 3).all()
        collector.update_policy_weights_({"w": np.full(1, 5.0)})
        assert (newest_batch(collector)["policy_version"] == 2).all()
    with pytest.raises(hr.errors.Closed):
        collector.increment_version()


@pytest.mark.parametrize("kind", KINDS)
def test_state(kind):
    # CV5: after loading version v the next publication is v + 1; UUIDs go on too.
    with make(kind, track_policy_version="uuid") as collector:
        for _ in range(5):
            collector.update_policy_weights_()
        state, ids = collector._updater.state(), [collector.version_id(number) for number in range(8)]
    with make(kind, track_policy_version="uuid") as other:
        other.update_policy_weights_()
        other._updater.load_state(state)
        assert other.policy_version == ids[5]
        assert (newest_batch(other)["policy_version"] == 5).all()
        other.update_policy_weights_()
        assert (newest_batch(other)["policy_version"] == 6).all()
        assert [other.version_id(number) for number in range(8)] == ids
        # Back to an earlier one.
        other._updater.load_state({**state, "newest": 2, "number": 2})
        other.update_policy_weights_({"w": np.full(1, 7.0)})
        batch = newest_batch(other)
        assert (batch["policy_version"] == 3).all()
        assert (batch["w"] == 7).all()
