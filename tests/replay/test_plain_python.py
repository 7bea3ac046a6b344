"""`NUMBA_DISABLE_JIT=1` is how kernels are debugged: plain Python must draw and show what compiled code does."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import headrace as hr


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
    program = f"from tests.replay.test_plain_python import batches; print(*batches({kind!r}), sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout.splitlines() == batches(kind)
