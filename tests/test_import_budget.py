"""`import headrace` is quick and loads nothing heavy: it must not be felt in a notebook, a worker or a command."""

import os
import subprocess
import sys

import pytest

HEAVY = ("torch", "jax", "gymnasium", "ray", "matplotlib", "pandas", "h5py", "pyarrow", "optree")
RUNS = 5
EXTRA_SECONDS_OVER_NUMPY = 0.060


def seconds_of(code):
    """Processor time of a process that runs this code: other load of the machine is not in it."""
    process = subprocess.Popen([sys.executable, "-c", code])
    _, process.returncode, usage = os.wait4(process.pid, 0)
    assert process.returncode == 0
    return usage.ru_utime + usage.ru_stime


def test_importing_costs_little_more_than_numpy():
    # In turn, and the best of each: noise of the machine hits both, and is never negative.
    pairs = [(seconds_of("import numpy"), seconds_of("import headrace")) for _ in range(RUNS)]
    extra = min(ours for _, ours in pairs) - min(numpy for numpy, _ in pairs)
    assert extra < EXTRA_SECONDS_OVER_NUMPY


@pytest.mark.parametrize(
    "use",
    [
        "import headrace",
        "import headrace; headrace.Signature.like({'a': 1.0}).zeros(2)",
        "from headrace import TrajectoryAccumulator, envs",
    ],
)
def test_nothing_heavy_is_loaded(use):
    code = f"{use}\nimport sys; print(*[name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=30
    )
    assert done.stdout.split() == []


def test_a_worker_starts_without_tables_and_replays():
    # They would take a third of its start.
    code = "import sys, headrace.collectors.worker.main; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=30
    )
    loaded = done.stdout.split()
    assert "headrace.collectors.worker.worker" in loaded
    assert not {"headrace.tables", "headrace.replay", "headrace.persist", "torch"}.intersection(loaded)
