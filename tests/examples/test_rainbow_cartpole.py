"""The short form of examples/rainbow_cartpole.py."""

import numpy as np
import pytest

import headrace as hr

torch = pytest.importorskip("torch")


def test_a_short_run_learns_and_plays_whole_episodes(example, monkeypatch):
    rainbow = example("rainbow_cartpole")
    monkeypatch.setattr(rainbow, "RANDOM_STEPS", 100)
    updates, update = [], rainbow.update
    monkeypatch.setattr(rainbow, "update", lambda *given: updates.append(update(*given)))
    assert 8 <= rainbow.main(steps=160) <= 500
    assert len(updates) == 15  # One for each step of the four environments beyond the random ones.


def test_new_transitions_get_the_largest_priority_so_far(example, monkeypatch):
    rainbow = example("rainbow_cartpole")
    monkeypatch.setattr(rainbow, "RANDOM_STEPS", 100)
    updated, of_new = set(), []

    def update(net, target, optimizer, replay, writer):
        info = replay.sample(64).info
        of_new.append(
            {float(p) for k, p in zip(info.keys, info.priorities, strict=True) if int(k) not in updated}
        )
        updated.update(info.keys.tolist())
        replay.update_priorities("replay", info.keys, np.full(64, 7.0))

    monkeypatch.setattr(rainbow, "update", update)
    rainbow.main(steps=160)
    assert of_new[0] == {1.0}
    assert 7.0 in set.union(*of_new[1:])


def test_the_network_learns_the_return_of_an_end_and_priorities_follow(example):
    """The only transition ends with reward 1: a fresh network expects about 50."""
    torch.manual_seed(0)
    rainbow = example("rainbow_cartpole")
    net, target = rainbow.Network(), rainbow.Network()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    seen = np.full(4, 0.5, np.float32)
    replay = hr.Replay.for_env(rainbow.ENV, [hr.Table.prioritized(100, rainbow.EXPONENT)], seed=0)
    with replay, hr.TransitionWriter(replay, n_step=3, priority=4.0) as writer:
        for _ in range(4):
            writer.add_first(seen)
            writer.add(1, 1.0, True, False, -seen)
        for _ in range(60):
            rainbow.update(net, target, optimizer, replay, writer)
        priorities = replay.sample(64).info.priorities
    with torch.no_grad():
        expected = net.log_probabilities(torch.from_numpy(seen[None])).exp()[0, 1] @ net.atoms
    assert abs(float(expected) - 1.0) < 0.5
    assert priorities.max() < 1.5


def test_a_projection_keeps_the_mean_of_returns_within_the_atoms(example):
    rainbow = example("rainbow_cartpole")
    atoms = torch.linspace(rainbow.LOWEST, rainbow.HIGHEST, rainbow.ATOMS)
    probabilities = torch.softmax(torch.randn(8, rainbow.ATOMS, generator=torch.manual_seed(0)), dim=1)
    returns = 2.9 + 0.97 * atoms.expand(8, -1)
    spread = rainbow.project(probabilities, returns)
    assert torch.allclose(spread.sum(dim=1), torch.ones(8), atol=1e-5)
    assert torch.allclose(spread @ atoms, (probabilities * returns).sum(dim=1), rtol=1e-4)


def test_returns_beyond_the_atoms_count_as_the_outermost(example):
    rainbow = example("rainbow_cartpole")
    probabilities = torch.full((1, rainbow.ATOMS), 1 / rainbow.ATOMS)
    for value, place in [(-5.0, 0), (250.0, rainbow.ATOMS - 1)]:
        spread = rainbow.project(probabilities, torch.full((1, rainbow.ATOMS), value))
        assert np.isclose(spread[0, place].item(), 1.0)
