"""The program of `bench/lines` with Stable-Baselines3's buffer does what its lines are counted for."""

import pytest
import torch

from tests.bench.test_lines import run


@pytest.mark.filterwarnings("ignore")
def test_it_runs():
    names = run("dqn_sb3.py", 1200)
    assert names["buffer"].size() == 150
    assert torch.isfinite(names["loss"])
