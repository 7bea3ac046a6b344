"""The arrays of a table, carved out of one stretch of memory."""

import subprocess
import sys

import pytest

# Ctrl-C comes at any call of Python: here at that of each tuple that is made of a table's arrays.
_INTERRUPTED = """
import sys
import headrace as hr
from headrace.replay.heap import Heap
from headrace.replay.item_memory import new_items, shape_for
from headrace.replay.items import Index, Items

selectors = hr.selectors.Uniform(), hr.selectors.Fifo()
shape = shape_for(*selectors, 100, with_windows=False, with_priorities=False)

def interrupt(frame, event, argument):
    if event == "call" and frame.f_code is {name}.__new__.__code__:
        sys.setprofile(None)
        raise KeyboardInterrupt

new_items(shape, *selectors)
sys.setprofile(interrupt)
try:
    new_items(shape, *selectors)
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("name", ["Heap", "Index", "Items"])
def test_an_interrupt_while_arrays_are_opened_is_only_that(name):
    """Numba, which would make the tuples, does not look whether that went well."""
    code = _INTERRUPTED.replace("{name}", name)
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=100
    )
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), done.stderr
