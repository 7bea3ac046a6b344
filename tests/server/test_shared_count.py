"""A number that two processes share."""

import threading

import numpy as np
import pytest

from headrace.kernels.shared_count import SharedCount

LONG = 30 * 10**9


@pytest.mark.parametrize(("number", "is_reached"), [(4, True), (5, True), (6, False)])
def test_a_wait_tells_whether_the_number_is_reached(number, is_reached):
    count = SharedCount(np.full(1, 5, np.int64))
    assert count.is_reached(number, 0) is is_reached
    assert count.is_reached(number, 10_000) is is_reached


def test_a_wait_ends_when_another_writer_reaches_the_number():
    memory = np.zeros(1, np.int64)
    found = []
    waiting = threading.Thread(target=lambda: found.append(SharedCount(memory).is_reached(2, LONG)))
    waiting.start()
    SharedCount(memory).set(1)
    SharedCount(memory).set(2)
    waiting.join(20)
    assert found == [True]
