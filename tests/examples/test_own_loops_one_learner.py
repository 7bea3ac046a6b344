"""The short form of examples/own_loops_one_learner.py."""

import numpy as np


def test_actors_in_processes_play_better_with_the_weights_of_the_learner(example, capsys):
    lengths = example("own_loops_one_learner").main(updates=10, actors=2)
    assert len(lengths) == 10
    assert np.mean(lengths[-3:]) > 1.3 * np.mean(lengths[:3])
    assert "10 updates: " in capsys.readouterr().out
