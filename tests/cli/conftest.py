"""Fixtures of several files."""

import pytest


@pytest.fixture
def collects_in_this_process(monkeypatch):
    """Lets `headrace train` collect without a worker, which takes seconds to start."""
    from headrace.cli.dqn import training
    from headrace.collectors import Collector

    def collector(*arguments, restart_workers, **options):
        assert not restart_workers
        return Collector(*arguments, **options)

    monkeypatch.setattr(training, "AsyncCollector", collector)
