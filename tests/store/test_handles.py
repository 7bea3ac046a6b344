"""Handles: what kernels open is what was put there."""

import os
import subprocess
import sys

import numpy as np
import pytest

from headrace.store.handles import Handles, opened
from headrace.store.jit import kernel


@kernel
def _sum_up(handles, totals):
    """The sums of three arrays; the first is written too."""
    integers = opened(handles, 0, np.int64)
    floats = opened(handles, 1, np.float32)
    flags = opened(handles, 2, np.bool_)
    for total in range(3):
        totals[total] = 0
    for place in range(integers.shape[0]):
        totals[0] += integers[place]
        integers[place] = -integers[place]
    for place in range(floats.shape[0]):
        totals[1] += floats[place]
    for place in range(flags.shape[0]):
        totals[2] += flags[place]


def test_a_kernel_opens_the_arrays_themselves():
    integers, floats = np.arange(5), np.full((2, 3), 0.5, np.float32)
    handles = Handles(integers, floats, np.array([True, False, True]))
    totals = np.empty(3)
    _sum_up(handles.words, totals)
    assert totals.tolist() == [10, 3, 2]
    assert integers.tolist() == [0, -1, -2, -3, -4]
    # Others take their places, empty ones too.
    words = handles.words
    handles.replace(1, np.ones(4, np.float32), np.zeros(0, np.bool_))
    _sum_up(words, totals)
    assert totals.tolist() == [-10, 4, 0]


def test_arrays_are_kept_alive():
    handles = Handles(np.arange(1000), np.ones(1000, np.float32), np.zeros(1, np.bool_))
    # What would take their memory if they were gone.
    others = [np.full(1000, 7) for _ in range(100)]
    totals = np.empty(3)
    _sum_up(handles.words, totals)
    assert totals.tolist() == [499500, 1000, 0]
    assert len(others) == 100


@pytest.mark.parametrize("array", [np.arange(6)[::2], np.ones((3, 3))[:, 1:]])
def test_numbers_have_to_lie_side_by_side(array):
    with pytest.raises(AssertionError, match="side by side"):
        Handles(array)


def test_loops_as_python_open_the_same():
    """`NUMBA_DISABLE_JIT=1` is how kernels are debugged."""
    program = (
        "import numpy as np\n"
        "from headrace.store.handles import Handles, opened\n"
        "numbers = np.arange(3.0)\n"
        "handles = Handles(numbers, np.zeros(0, np.uint32))\n"
        "found = opened(handles.words, 0, np.float64)\n"
        "found[1] = 7\n"
        "print(numbers.tolist(), len(opened(handles.words, 1, np.uint32)))\n"
    )
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    shown = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert shown.stdout.split() == ["[0.0,", "7.0,", "2.0]", "0"]
