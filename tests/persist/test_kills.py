"""A store on disk after its process was killed (replay D2, D4). kills.py does the work, in processes of its own.

A run kills at some of the lines. Which ones depends on HEADRACE_KILL_SEED, so runs with other seeds see others;
HEADRACE_KILL_EVERY_LINE=1 kills at each of them, which takes an hour of one processor.
"""

import json
import os
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("kills.py")
# Of some operations every line would take minutes; the stride is prime, so it does not fall in with loops.
STRIDES = {
    "append": 67,
    "append across pages": 211,
    "append of a client": 487,
    "create_item": 17,
    "end_episode": 53,
    "end_episode of one lane": 53,
    "sample uniform": 17,
    "sample until gone": 31,
    "sample heap": 17,
    "sample distinct": 17,
    "sample and let pending in": 53,
    "first update": 29,
    "update heap": 29,
    "delete": 29,
    "reset": 31,
    "shrink": 37,
    "grow": 211,
    "flush": 17,
    "close": 17,
    "create": 61,
    "reopen": 97,
}


EVERY_LINE = os.environ.get("HEADRACE_KILL_EVERY_LINE", "0") != "0"
SEED = int(os.environ.get("HEADRACE_KILL_SEED", "0"))


def lines_of(operation):
    """The stride and the offset of an operation in this run."""
    if EVERY_LINE:
        return 1, 0
    stride = STRIDES[operation]
    # The same for all who have the seed, whatever Python makes of the hashes of strings.
    return stride, zlib.crc32(f"{operation} {SEED}".encode()) % stride


def run(*arguments, **environment):
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *map(str, arguments)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=None if EVERY_LINE else 170,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.timeout(0 if EVERY_LINE else 180)
@pytest.mark.parametrize("operation", STRIDES)
def test_d2_killed_at_any_line_a_change_is_there_whole_or_not_at_all(operation):
    """Kernels run as plain Python, so they too are killed between any two of their lines."""
    result = run("lines", operation, *lines_of(operation), HEADRACE_PLAIN="1")
    assert result["lines"] > 20


@pytest.mark.timeout(0 if EVERY_LINE else 180)
def test_d7_killed_at_any_line_of_a_close_after_its_record():
    """The file of the rows is cut last: whole or cut, the store opens and nothing is missing."""
    result = run("lines", "end of a close", *((1, 0) if EVERY_LINE else (2, SEED % 2)), HEADRACE_PLAIN="1")
    assert result["lines"] > 20
    assert result["sizes"] == 2


@pytest.mark.timeout(0 if EVERY_LINE else 180)
@pytest.mark.parametrize("seed", [0, 1])
def test_d2_killed_at_random_moments_of_a_long_history(seed):
    """Compiled, as users run it; and the store is as good as new afterwards."""
    assert run("random", seed, 4)["kills"] == 4
