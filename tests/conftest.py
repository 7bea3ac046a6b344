"""What every test lives under: nothing that it starts may outlive it."""

import multiprocessing
import threading

import pytest
from hypothesis import HealthCheck, settings

# The time of one example says more about the machine than about the code; the suite's own timeout ends a hang.
settings.register_profile("headrace", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("headrace")


@pytest.fixture(autouse=True)
def nothing_outlives_the_test():
    before = set(threading.enumerate())
    yield
    # A thread that was told to end may need a moment; daemons of libraries are theirs.
    for thread in set(threading.enumerate()) - before:
        if not thread.daemon:
            thread.join(timeout=5.0)
            assert not thread.is_alive(), f"{thread.name} outlived the test"
    for process in multiprocessing.active_children():
        process.join(timeout=5.0)
        assert not process.is_alive(), f"{process.name} outlived the test"
