"""The example of PPO on our memory, in short."""

import runpy
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("skrl")


@pytest.mark.filterwarnings("ignore")
def test_the_ppo_example_runs(capsys):
    example = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "skrl_ppo_memory.py"))
    length = example["main"](["--steps", "70"])
    assert 1 <= length <= 500
    assert "256 of 256 samples" in capsys.readouterr().out
