"""A program may end with writers in the middle of an episode: it ends in peace."""

import subprocess
import sys

import pytest

BEGINNING = """
import numpy as np
import headrace as hr

def table():
    return hr.Table("t", sampler=hr.selectors.Fifo(), remover=hr.selectors.Fifo(), max_size=100)
"""
OBSERVER = """
frame = hr.Trajectory(0, np.float32(1), 0, (), 1, 1.0, 1.0)
replay = hr.Replay(hr.Signature.like(frame), [table()])
observer = hr.AddTrajectoryObserver(replay, "t", 3, pad_end_of_episodes=True)
observer(frame)
"""
STEP_WRITER = """
step = {"observation": np.float32(0), "action": 0, "reward": 0.0, "terminated": False, "truncated": False}
replay = hr.Replay(hr.Signature.like(step), [table()])
writer = hr.TransitionWriter(replay, "t", 3)
writer.add_first(np.float32(0))
writer.add(1, 1.0, False, False, np.float32(1))
"""
WRITER = """
replay = hr.Replay(hr.Signature.like({"x": 0}), [hr.Table.queue("t", 1)])
writer = replay.writer(items=[hr.ItemRule("t", 1)])
for x in range(3):
    writer.append({"x": x})
assert writer.pending == 2
"""


# Something else that is still there keeps them until the modules are taken apart.
@pytest.mark.parametrize("keeping", ["", "import builtins\nbuiltins.kept = lambda: globals()\n"])
@pytest.mark.parametrize(
    "program", [OBSERVER, STEP_WRITER, WRITER], ids=["observer", "step_writer", "writer"]
)
def test_nothing_is_said_about_what_cannot_work_any_more(program, keeping):
    done = subprocess.run(
        [sys.executable, "-c", BEGINNING + program + keeping],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
