"""What every test lives under: nothing that it starts may outlive it."""

import multiprocessing
import threading

import numpy as np
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


def pytest_sessionstart(session):
    """Compile the kernels that most tests use: it takes a while the first time, and no test is to be blamed for it."""
    import headrace as hr

    step = {
        "action": 0,
        "reward": np.float32(0.0),
        "terminated": False,
        "truncated": False,
        "observation": np.zeros(2, np.float32),
    }
    table = hr.Table("t", sampler=hr.selectors.Prioritized(), remover=hr.selectors.Fifo(), max_size=8)
    with hr.Replay(hr.Signature.like(step), [table], seed=0) as replay:
        with replay.writer(items=[hr.ItemRule("t", 2, lookahead=1), hr.ItemRule("t", 1)]) as writer:
            for _ in range(20):
                writer.append(step)
            writer.end_episode(step["observation"])
        for views in (None, hr.views.transition(n_step=2, frame_stack=2)):
            batch = replay.sample("t", 4, views=views)
        replay.update_priorities("t", batch.info.keys, np.ones(4))
        replay.delete("t", batch.info.keys[:1])
    with hr.Replay(hr.Signature.like(step), [hr.Table.queue("q", 8)]) as replay:
        with replay.writer(lanes=2, items=[hr.ItemRule("q", 1)]) as writer:
            writer.append({name: np.stack([np.asarray(value)] * 2) for name, value in step.items()})
            writer.end_episode({"observation": np.zeros((2, 2), np.float32)})
            replay.sample("q", 2)
