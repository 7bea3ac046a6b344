"""Ctrl-C at every place where weights are published: later ones act, and no number stands for two sets."""

import itertools

import numpy as np
import pytest

import headrace as hr
from headrace.testing import CounterEnv

PUBLISHING = ("collectors/updates/", "weights/")


class Showing:
    """A policy that shows its weight in a column."""

    def __init__(self):
        self.weight = np.zeros(1)

    def __call__(self, observation):
        return np.zeros(len(observation), int), {"weight": np.full(len(observation), self.weight[0])}

    def state_dict(self):
        return {"w": self.weight}

    def load_state_dict(self, weights):
        self.weight = weights["w"].copy()


def check_numbers(sets, batch):
    """Each version is that of one set of weights only."""
    for version, weight in zip(batch["policy_version"].ravel(), batch["weight"].ravel(), strict=True):
        assert sets.setdefault(int(version), weight) == weight


@pytest.mark.parametrize("sync", [True, False])
@pytest.mark.parametrize("way", [{}, {"worker_ids": [0]}])
def test_an_update_that_was_interrupted(interrupt_at, sync, way):
    # CV2, CW3, CX7: the next update acts in all workers.
    make = {"num_workers": 2, "num_envs": 1, "frames_per_batch": 4, "sync": sync}
    sets, weight = {}, 0.0
    with hr.MultiCollector(lambda: CounterEnv(500), Showing(), **make) as collector:
        for point in itertools.count():
            weight += 1

            def update():
                collector.update_policy_weights_({"w": np.full(1, weight)}, **way)  # noqa: B023

            place = interrupt_at(point, update, within=PUBLISHING)
            for _ in range(2):
                check_numbers(sets, collector.next(timeout=40))
            weight += 1
            collector.update_policy_weights_({"w": np.full(1, weight)})
            # Asynchronous workers have begun at most two rollouts before.
            due = {None: 1} if sync else {0: 3, 1: 3}
            while any(due.values()):
                batch = collector.next(timeout=40)
                check_numbers(sets, batch)
                due[batch.worker_idx] = max(0, due[batch.worker_idx] - 1)
                assert due[batch.worker_idx] or (batch["weight"] == weight).all(), place
            if place is None:
                break
    assert point > 20


def test_a_batch_that_was_interrupted_loses_no_weights(interrupt_at):
    # CW3, CV6, CX7: what was published while a batch was collected acts from the next one on.
    make = {"num_workers": 2, "num_envs": 1, "frames_per_batch": 4, "sync": True}
    sets, weight = {}, 0.0
    with hr.MultiCollector(lambda: CounterEnv(500), Showing(), **make) as collector:
        collector.next(timeout=40)
        for point in itertools.count():
            weight += 1
            # The workers have begun a batch: the weights wait for its end.
            with pytest.raises(hr.DeadlineExceeded):
                collector.next(timeout=0)
            collector.update_policy_weights_({"w": np.full(1, weight)})
            place = interrupt_at(point, collector.next, 40, within=PUBLISHING)
            batches = [collector.next(timeout=40) for _ in range(2)]
            for batch in batches:
                check_numbers(sets, batch)
            assert (batches[-1]["weight"] == weight).all(), place
            if place is None:
                break
    assert point > 5
