"""The program of `bench/lines` with TorchRL's buffer does what its lines are counted for."""

import pytest
import torch

from tests.bench.test_lines import run


@pytest.mark.filterwarnings("ignore")
def test_it_runs():
    names = run("dqn_torchrl.py", 1200)
    assert len(names["buffer"]) == 150 * 8
    assert torch.isfinite(names["loss"])
