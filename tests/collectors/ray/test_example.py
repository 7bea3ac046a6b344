"""The short form of examples/impala_ray.py, in the cluster of these tests."""

import importlib
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.usefixtures("cluster"), pytest.mark.timeout(180)]


def test_it_learns_from_rollouts_of_an_actor(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "examples"))
    for name in ("impala_vtrace", "impala_ray"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    told = importlib.import_module("impala_ray").main(batches=60, workers=1)
    assert told.batches == 60
    assert told.lag_exceeded == 0
    assert max(told.lag_histogram) <= sys.modules["impala_vtrace"].MAX_STALENESS
    assert told.workers[0].rollouts >= 60
    assert told.episode_return_mean > 25  # Random actions: 22.
