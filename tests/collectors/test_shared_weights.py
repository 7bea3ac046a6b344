"""Weights of several workers in one memory (collectors CW2, CW3, CW6)."""

import os
import time
import timeit
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.collectors.loop.times import LoopTimes
from headrace.collectors.updates.models import models_of
from headrace.collectors.updates.reading import WeightReading
from headrace.collectors.updates.shared import SharedWeights


class Part:
    def __init__(self, size=2):
        self.value = np.zeros(size)

    def state_dict(self):
        return {"value": self.value}

    def load_state_dict(self, state):
        self.value = state["value"]


class Whole(Part):
    """Its weights hold those of its part, as those of a torch module do."""

    def __init__(self, size=2):
        super().__init__(size)
        self.critic = Part()

    def state_dict(self):
        return {"value": self.value, "critic": self.critic.state_dict()}

    def load_state_dict(self, state):
        self.value = state["value"]
        self.critic.load_state_dict(state["critic"])

    def show(self):
        values = [set(array.tolist()) for array in (self.value, self.critic.value)]
        return [int(value.pop()) for value in values]


IDS = ["policy", "critic"]


@contextmanager
def opened(workers):
    policies = [Whole() for _ in range(workers)]
    models = [models_of(policy, IDS) for policy in policies]
    shared = SharedWeights(models, [None] * workers)
    readings = []
    for worker, policy in enumerate(policies):
        reading = WeightReading(policy, models[worker], {}, LoopTimes())
        reading.receive(os.dup(shared.descriptor), shared.layout, worker, workers)
        readings.append(reading)
    try:
        yield shared, policies, readings
    finally:
        shared.close()


def trees(value):
    return {
        "policy": {"value": np.full(2, float(value)), "critic": {"value": np.full(2, float(value))}},
        "critic": {"value": np.full(2, float(value))},
    }


publications = st.lists(
    st.tuples(
        st.sampled_from([["policy"], ["critic"], ["policy", "critic"]]),
        st.one_of(st.none(), st.sets(st.integers(0, 2), min_size=1).map(sorted)),
        st.sets(st.integers(0, 2)),  # The workers that look after it.
    ),
    max_size=10,
)


@given(publications)
@settings(max_examples=150, deadline=None)
def test_a_worker_that_skips_sets_ends_where_one_that_sees_all_does(publications):
    """CW3: it has the weights of the newest set meant for it, parts in the order of their publications."""
    model = [Whole() for _ in range(3)]
    numbers = [0] * 3
    with opened(3) as (shared, policies, readings):
        for number, (ids, workers, looking) in enumerate(publications, start=1):
            checked = {model_id: shared.models[model_id].checked(trees(number)[model_id]) for model_id in ids}
            shared.publish(checked, number, workers)
            for worker in range(3) if workers is None else workers:
                numbers[worker] = number
                for model_id in ids:
                    (model[worker] if model_id == "policy" else model[worker].critic).load_state_dict(
                        trees(number)[model_id]
                    )
            for worker in looking:
                assert readings[worker].take_over() == numbers[worker]
                assert policies[worker].show() == model[worker].show()
            for model_id in ids:
                np.testing.assert_equal(shared.cached(model_id), trees(number)[model_id])
        for worker, reading in enumerate(readings):
            assert reading.take_over() == numbers[worker]
            assert policies[worker].show() == model[worker].show()


def test_a_new_number_applies_nothing():
    """CV4."""
    with opened(2) as (shared, policies, readings):
        shared.publish({"policy": shared.models["policy"].checked(trees(1)["policy"])}, 1, None)
        assert [reading.take_over() for reading in readings] == [1, 1]
        policies[0].value = np.full(2, 9.0)
        shared.renumber(2)
        assert [reading.take_over() for reading in readings] == [2, 2]
        assert policies[0].show() == [9, 1]


def test_workers_whose_policies_differ():
    models = [models_of(Whole(size), IDS) for size in (2, 3, 2)]
    shared = SharedWeights(models, [None] * 3)
    shared.check_workers([0, 2])
    for workers in (None, [0, 1]):
        with pytest.raises(hr.SpecError, match="those of 1 have other"):
            shared.check_workers(workers)
    shared.close()
    with pytest.raises(hr.errors.Closed):
        shared.renumber(1)
    assert shared.cached("policy") is None


def test_looking_costs_no_more_than_a_microsecond():
    """CW4: one read of a shared integer."""
    with opened(2) as (shared, _, readings):
        shared.publish({"policy": shared.models["policy"].checked(trees(1)["policy"])}, 1, None)
        look = readings[1].take_over
        look()
        assert min(timeit.repeat(look, timer=time.thread_time, number=200, repeat=50)) / 200 < 1e-6
