"""The short form of examples/multi_timescale.py."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")


def test_actors_play_better_with_what_the_learner_learnt(example, capsys):
    losses, episodes = example("multi_timescale").main(batches=60, actors=3)
    assert len(losses) == 60
    assert np.isfinite(losses).all()
    assert np.mean(episodes[-20:]) > 1.3 * np.mean(episodes[:20])
    assert "480 learnt from, each once" in capsys.readouterr().out


def test_an_actor_that_fails_ends_the_learner(example, monkeypatch):
    module = example("multi_timescale")

    def fail(self, observation):
        raise RuntimeError("no action")

    monkeypatch.setattr(module.ActorCritic, "act", fail)
    with pytest.raises(RuntimeError, match="no action"):
        module.main(batches=5, actors=2)


def test_returns_go_on_with_the_bootstrap_and_stop_at_ends(example):
    module = example("multi_timescale")
    generator = np.random.default_rng(0)
    reward = generator.normal(size=(3, module.STEPS)).astype(np.float32)
    ended = generator.random((3, module.STEPS)) < 0.1
    bootstrap = np.array([1.0, -2.0, 5.0], np.float32)
    step = {"reward": torch.from_numpy(reward), "ended": torch.from_numpy(ended)}
    found = module.returns(step, torch.from_numpy(bootstrap)).numpy()
    for b in range(3):
        for t in range(module.STEPS):
            expected, discount = 0.0, 1.0
            for k in range(t, module.STEPS):
                expected += discount * reward[b, k]
                discount *= 0.0 if ended[b, k] else module.GAMMA
            np.testing.assert_allclose(found[b, t], expected + discount * bootstrap[b], rtol=1e-4, atol=1e-4)
