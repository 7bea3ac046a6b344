"""The short forms of examples that use Ray, in the cluster of these tests."""

import importlib
import sys
from pathlib import Path

import pytest
from ray import cloudpickle

pytestmark = [pytest.mark.usefixtures("cluster"), pytest.mark.timeout(180)]


@pytest.fixture
def example(monkeypatch):
    """`example("name")` imports examples/name.py, and the examples that it builds on, anew."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "examples"))

    def load(*names):
        for name in names:
            monkeypatch.delitem(sys.modules, name, raising=False)
        return importlib.import_module(names[-1])

    return load


def test_it_learns_from_rollouts_of_an_actor(example):
    pytest.importorskip("torch")
    told = example("impala_vtrace", "impala_ray").main(batches=60, workers=1)
    assert told.batches == 60
    assert told.lag_exceeded == 0
    assert max(told.lag_histogram) <= sys.modules["impala_vtrace"].MAX_STALENESS
    assert told.workers[0].rollouts >= 60
    assert told.episode_return_mean > 25  # Random actions: 22.


def test_tasks_and_a_learner_meet_at_a_server_of_its_own(example, capsys):
    module = example("q_learning_through_a_server")
    # Ray's processes do not find the folder of the examples.
    cloudpickle.register_pickle_by_value(module)
    try:
        share = module.main(updates=200, actors=2, backend="ray")
    finally:
        cloudpickle.unregister_pickle_by_value(module)
    assert share > 0.1  # Random directions reach the goal in 1 % of the episodes.
    assert "each learnt from" in capsys.readouterr().out
