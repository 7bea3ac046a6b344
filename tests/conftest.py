"""What every test lives under: nothing that it starts may outlive it."""

import gc
import multiprocessing
import os
import signal
import threading

import pytest
from hypothesis import HealthCheck, settings
from plain_kernels import fewer

# A shell has what it starts in the background ignore Ctrl-C, and tests send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The time of one example says more about the machine than about the code; the suite's own timeout ends a hang. A
# failure prints what repeats it elsewhere.
settings.register_profile(
    "headrace",
    max_examples=fewer(100),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.load_profile("headrace")

# Tests run in several processes at a time: semaphores are named after the one they belong to, its children included.
SEMAPHORES = f"/mp-{os.getpid()}"
multiprocessing.current_process()._config["semprefix"] = SEMAPHORES


def pytest_collection_finish():
    """Leaves the tests and what they import out of each later `gc.collect()`, which took a second in a whole run."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def named_memory():
    """Tells what has a name in shared memory; what is there of other tests' processes is left out."""

    def look():
        names = os.listdir("/dev/shm")
        return {name for name in names if not name.startswith("sem.mp-") or f"{SEMAPHORES[1:]}-" in name}

    return look


@pytest.fixture(autouse=True)
def nothing_outlives_the_test():
    before = set(threading.enumerate())
    yield
    # A thread that was told to end may need a moment; daemons of libraries are theirs.
    for thread in set(threading.enumerate()) - before:
        if not thread.daemon:
            thread.join(timeout=20.0)
            assert not thread.is_alive(), f"{thread.name} outlived the test"
    for process in multiprocessing.active_children():
        process.join(timeout=20.0)
        assert not process.is_alive(), f"{process.name} outlived the test"
