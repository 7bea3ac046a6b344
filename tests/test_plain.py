"""`HEADRACE_PLAIN=1` is how kernels are debugged: as plain Python they must do what they do compiled."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import headrace as hr

ROOT = Path(__file__).parent.parent
PLAIN = {**os.environ, "HEADRACE_PLAIN": "1"}
# What calls kernels directly, and what is quick though they are a hundred times as slow. Each line is one process.
SUITES = [
    "tests/tables",
    "tests/views tests/leases/test_channel.py tests/leases/test_tls_channel.py",
    "tests/server/test_shards.py tests/server/test_given_keys.py tests/server/test_selected_windows.py",
    "tests/server/test_batch_queue.py tests/server/test_batch_queue_threads.py tests/server/test_queues_of_clients.py",
    "tests/store tests/replay/test_fused.py tests/replay/test_streams.py tests/trajectories/test_returns.py",
]


def test_kernels_are_plain_where_the_environment_asks_for_it():
    program = "import headrace.store.window as window; print(window.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", program], env=PLAIN, capture_output=True, text=True, check=True
    )
    assert done.stdout.endswith("window.py\n")


def test_plain_kernels_without_cython_say_what_they_need():
    program = "import sys; sys.modules['cython'] = None; import headrace"
    done = subprocess.run(
        [sys.executable, "-c", program], env=PLAIN, capture_output=True, text=True, check=False
    )
    assert done.stderr.splitlines()[-1].startswith("ImportError: headrace: HEADRACE_PLAIN is set")
    assert done.stderr.endswith("pip install cython, or unset HEADRACE_PLAIN\n")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("suite", SUITES)
def test_plain_kernels_pass_the_tests_of_compiled_ones(suite):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "200"]
    done = subprocess.run(
        [*command, *suite.split()], cwd=ROOT, env=PLAIN, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-10_000:]


def _step(time: int, *, wide: bool) -> dict[str, np.ndarray | np.generic]:
    if wide:
        return {"wide": np.full(100, time, np.float32)}
    return {
        "observation": np.full(3, time, np.float32),
        "action": np.int16(time),
        "reward": np.float32(0.1 * time),
        "terminated": np.bool_(False),
        "truncated": np.bool_(False),
    }


def batches(kind: str) -> list[str]:
    """All numbers of some batches, as they are written down."""
    wide = kind == "wide"
    views = None if wide else hr.views.transition(3, 0.9, frame_stack=2)
    sampler = hr.selectors.Prioritized(0.7) if kind == "prioritized" else hr.selectors.Uniform()
    table = hr.Table("t", sampler=sampler, remover=hr.selectors.Fifo(), max_size=300)
    found = []
    with hr.Replay(hr.Signature.like(_step(0, wide=wide)), [table], seed=5) as replay:
        with replay.writer(items=[hr.ItemRule("t", 1, lookahead=3)]) as writer:
            for time in range(400):
                writer.append(_step(time, wide=wide))
        for turn in range(4):
            batch = replay.sample("t", 40, views=views)
            replay.update_priorities("t", batch.info.keys, np.linspace(turn, 9, 40))
            replay.delete("t", batch.info.keys[:7])
            shown = [batch.info.probabilities, batch.info.times_sampled, *batch.data.values()]
            found += [repr((array.dtype, array.tolist())) for array in shown]
    return found


@pytest.mark.parametrize("kind", ["uniform", "prioritized", "wide"])
def test_plain_python_shows_the_same_batches(kind):
    program = f"from tests.test_plain import batches; print(*batches({kind!r}), sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=PLAIN,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout.splitlines() == batches(kind)
