"""Ctrl-C at every moment of a call of a client's queue: each sample is in the queue once, and no lock stays taken."""

import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from interrupts import Interrupt

import headrace as hr

FOLDER = "server/client/queues"


@pytest.fixture
def queues(tmp_path):
    """A queue of 4 samples behind a server, itself and its client's."""
    queue = hr.BatchQueue({"n": np.int64(0)}, 2, num_buffers=2)
    with hr.Server({"q": queue}, address=None, unix=str(tmp_path / "socket")) as server:
        with hr.Client(server.address, timeout=20) as client:
            yield queue, client.queue("q")


@pytest.mark.parametrize("timeout", [0.0, 0.02])
def test_a_wait_for_a_full_queue(queues, timeout):
    """server CL5, BQ12: it ends with Ctrl-C or its deadline, and other threads can use the queue."""
    queue, remote = queues
    for n in range(6):
        remote.send({"n": n})
    with ThreadPoolExecutor(1) as other:
        for number in itertools.count(1):
            try:
                with Interrupt(number, folder=FOLDER):
                    remote.wait(timeout=timeout)
            except KeyboardInterrupt:
                with pytest.raises(hr.DeadlineExceeded):
                    other.submit(remote.wait, 0).result(20)
            except hr.DeadlineExceeded:
                break
    assert number > 6, "there are moments to try"
    assert [queue.sample(timeout=20)[0]["n"].tolist() for _ in range(3)] == [[0, 1], [2, 3], [4, 5]]
    remote.wait(timeout=20)


def test_every_sample_is_in_the_queue_once(queues):
    """server AK3, BQ3: and that of a call that was interrupted may be."""
    queue, remote = queues
    returned, received, n = [], [], 0
    for number in itertools.count(1):
        n += 1
        try:
            with Interrupt(number, folder=FOLDER):
                remote.send({"n": n}, timeout=20)
        except KeyboardInterrupt:
            pass
        else:
            break
        n += 1
        remote.send({"n": n}, timeout=20)
        returned.append(n)
        remote.wait(timeout=20)
        while queue.statistics().size >= 2:
            received += queue.sample(timeout=20)[0]["n"].tolist()
    assert number > 3, "there are moments to try"
    assert (np.diff(received) > 0).all()
    assert set(returned[:-1]) <= set(received)
