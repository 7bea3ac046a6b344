"""The short form of examples/sac_jax.py, where JAX is installed."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
jax = pytest.importorskip("jax")


@pytest.fixture(scope="module")
def data():
    """Episodes that all end after one step, with a reward that depends on the observation."""
    random = np.random.default_rng(0)
    observation = random.normal(size=(256, 3)).astype(np.float32)
    return {
        "observation": observation,
        "next_observation": observation,
        "action": random.uniform(-2, 2, (256, 1)).astype(np.float32),
        "reward": observation[:, 0] - 3,
        "discount": np.zeros(256, np.float32),
    }


def test_a_short_run_with_jax_makes_an_update_for_each_new_frame(example, monkeypatch, capsys):
    sac = example("sac_jax")
    monkeypatch.setattr(sac, "RANDOM_FRAMES", 980)
    made, update = [], sac.update
    monkeypatch.setattr(sac, "update", lambda learner, batch: made.append(batch) or update(learner, batch))
    assert -2000 < sac.main(steps=1_000) < 0
    assert len(made) == 40
    assert all(isinstance(column, jax.Array) for column in made[0].values())
    assert "1,000 steps: return" in capsys.readouterr().out


def test_critics_in_jax_learn_the_rewards_of_ends_and_the_target_follows(example, data):
    sac = example("sac_jax")
    learner, value = sac.new_learner(0), jax.jit(sac.value)
    errors = {"critics": [], "target": []}
    for _ in range(3):
        for name, weights in (("critics", learner.params["critics"]), ("target", learner.target)):
            values = np.asarray(value(weights, data["observation"], data["action"]))
            assert values.shape == (2, 256)
            errors[name].append(abs(values - data["reward"]).mean())
        for _ in range(50):
            learner = sac.update(learner, data)
    assert int(learner.updates) == 150
    assert errors["critics"][2] < 0.3 * errors["critics"][0]
    assert errors["target"][0] > errors["target"][1] > errors["target"][2] > errors["critics"][2]


def test_each_loss_in_jax_moves_its_own_weights(example, data):
    """Critics do not please the actor, and the temperature does not pay for values."""
    sac = example("sac_jax")
    learner, key = sac.new_learner(0), jax.random.key(1)
    gradient = jax.jit(jax.grad(sac.loss))(learner.params, learner.target, data, key)

    def critics_loss(critics):
        error = sac.value(critics, data["observation"], data["action"]) - data["reward"]
        return 2 * (error**2).mean()

    alone = jax.jit(jax.grad(critics_loss))(learner.params["critics"])
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), gradient["critics"], alone
    )
    # A fresh actor is more random than it need be, so the temperature falls.
    assert float(gradient["log_temperature"]) > 0


def test_log_probabilities_in_jax_are_those_of_the_squashed_actions(example):
    """The density of an action is the derivative of the share of samples below it."""
    sac = example("sac_jax")
    actor = sac.new_learner(0).params["actor"]
    action, log_prob = jax.jit(sac.sample)(actor, np.full((100_000, 3), 0.3, np.float32), jax.random.key(0))
    action, log_prob = np.asarray(action), np.asarray(log_prob)
    assert abs(action).max() <= 2.0
    near = abs(action[:, 0] - 0.5) < 0.05
    assert np.isclose(near.mean() / 0.1, np.exp(log_prob[near]).mean(), rtol=0.05)


def test_adam_in_jax_is_that_of_torch(example):
    sac = example("sac_jax")
    random = np.random.default_rng(0)
    params = random.normal(size=5).astype(np.float32)
    theirs = torch.from_numpy(params.copy()).requires_grad_()
    optimizer = torch.optim.Adam([theirs], lr=sac.LEARNING_RATE)
    mean = square = np.zeros(5, np.float32)
    adam = jax.jit(sac.adam)
    for number in range(1, 6):
        gradient = random.normal(size=5).astype(np.float32)
        theirs.grad = torch.from_numpy(gradient)
        optimizer.step()
        params, mean, square = adam(params, gradient, mean, square, number)
        np.testing.assert_allclose(params, theirs.detach(), rtol=1e-5)


def test_an_explorer_in_jax_draws_other_actions_at_each_call(example):
    sac = example("sac_jax")
    explorer, seen = sac.Explorer(sac.new_learner(0).params["actor"], seed=3), np.zeros((4, 3), np.float32)
    first, second = explorer(seen), explorer(seen)
    assert len({*np.ravel(first).tolist(), *np.ravel(second).tolist()}) == 8
