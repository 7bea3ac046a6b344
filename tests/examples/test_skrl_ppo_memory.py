"""The short form of examples/skrl_ppo_memory.py, where skrl is installed."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("skrl")

PROGRAM = Path(__file__).parents[2] / "examples" / "skrl_ppo_memory.py"


def test_the_memory_is_filled_and_read_back():
    # A process of its own: skrl leaves handlers behind that log when it ends.
    done = subprocess.run(
        [sys.executable, PROGRAM, "--steps", "192"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "192 steps: episodes of" in done.stdout
    assert "256 of 256 samples" in done.stdout
