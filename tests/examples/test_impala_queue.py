"""The short form of examples/impala_queue.py."""

import numpy as np
import pytest

pytest.importorskip("torch")


def test_each_rollout_of_two_actors_is_learnt_from_once(example, capsys):
    losses, returned = example("impala_queue").main(updates=45, actors=2)
    assert len(losses) == 45
    assert np.isfinite(losses).all()
    assert returned > 25  # Random actions give 22.
    told = capsys.readouterr().out
    assert "720 learnt from" in told
    # The queue holds 32 rollouts, so what was learnt from is never much older than its two batches.
    assert float(told.split(" updates old")[0].split()[-1]) < 10
