"""Handles: what kernels open is what was put there."""

import os
import subprocess
import sys

import numpy as np
import pytest

from headrace.store.handles import handles_of, opened
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
    integers, floats, flags = np.arange(5), np.full((2, 3), 0.5, np.float32), np.array([True, False, True])
    handles = handles_of(integers, floats, flags)
    totals = np.empty(3)
    _sum_up(handles, totals)
    assert totals.tolist() == [10, 3, 2]
    assert integers.tolist() == [0, -1, -2, -3, -4]
    # Others take their places, empty ones too.
    others = (np.ones(4, np.float32), np.zeros(0, np.bool_))
    handles[1:] = handles_of(*others)
    _sum_up(handles, totals)
    assert totals.tolist() == [-10, 4, 0]


def read_only():
    array = np.ones(3)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("array", [np.arange(6)[::2], np.ones((3, 3))[:, 1:], read_only()])
def test_what_kernels_could_not_open(array):
    with pytest.raises(ValueError, match="side by side"):
        handles_of(np.ones(1), array)


def test_loops_as_python_open_the_same():
    """`NUMBA_DISABLE_JIT=1` is how kernels are debugged."""
    program = (
        "import numpy as np\n"
        "from headrace.store.handles import handles_of, opened\n"
        "arrays = np.arange(3.0), np.zeros(0, np.uint32)\n"
        "handles = handles_of(*arrays)\n"
        "opened(handles, 0, np.float64)[1] = 7\n"
        "print(arrays[0].tolist(), len(opened(handles, 1, np.uint32)))\n"
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
