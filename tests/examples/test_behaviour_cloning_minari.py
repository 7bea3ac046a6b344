"""The short form of examples/behaviour_cloning_minari.py."""

import numpy as np
import pytest

import headrace as hr

pytest.importorskip("torch")
pytest.importorskip("h5py")


def test_the_clone_does_what_it_was_shown(example):
    before, after, losses = example("behaviour_cloning_minari").main(episodes=4, updates=150)
    assert before < 0.5 < 0.9 < after
    assert np.isfinite(losses).all()
    assert np.mean(losses[-20:]) < 0.9 * losses[0]


def test_whole_episodes_are_recorded_and_loaded(example, tmp_path):
    cloning = example("behaviour_cloning_minari")
    path = cloning.record(3, tmp_path, seed=1)
    dataset = hr.datasets.load_minari(path)
    assert len(dataset) >= 3
    assert all(episode.terminated or episode.truncated for episode in dataset)
    assert all(episode.return_ == len(episode) for episode in dataset)
    with cloning.load(tmp_path, seed=1) as replay:
        assert len(replay.table("steps")) == dataset.total_steps
