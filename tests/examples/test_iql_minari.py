"""The short form of examples/iql_minari.py."""

import pytest

import headrace as hr

torch = pytest.importorskip("torch")
pytest.importorskip("h5py")


def test_a_short_run_learns_from_the_recorded_episodes(example, capsys):
    recorded, learnt = example("iql_minari").main(steps=600, updates=20)
    assert 15 < recorded < 30
    assert 8 <= learnt <= 500
    assert "the recorded episodes return" in capsys.readouterr().out


def test_the_dataset_comes_back_whole(example, tmp_path):
    iql = example("iql_minari")
    iql.record(200, str(tmp_path), seed=1)
    with hr.Replay.for_env(iql.ENV, [hr.Table.uniform(1_000)]) as replay:
        recorded = iql.load(replay, str(tmp_path))
        dataset = hr.datasets.load_minari(iql.DATASET, root=tmp_path)
        assert len(replay.table("replay")) == dataset.total_steps == 200
        assert recorded * len(dataset) == pytest.approx(200)


def policies(iql, temperature, rewards):
    """The share of action 1 after some updates; half of the recorded actions are 1, and earn the second reward."""
    torch.manual_seed(0)
    learner = iql.Iql(temperature)
    rows, action = torch.linspace(-1, 1, 8)[:, None].repeat(2, 4), torch.arange(16) // 8
    batch = {
        "observation": rows,
        "next_observation": rows,
        "action": action,
        "reward": torch.tensor(rewards)[action],
        "discount": torch.zeros(16),
    }
    for _ in range(100):
        learner.update(batch)
    return torch.softmax(learner.policy.scores(rows[:8]), dim=1)[:, 1].detach()


def test_the_policy_takes_the_better_of_the_recorded_actions(example):
    assert policies(example("iql_minari"), 3.0, [0.0, 1.0]).min() > 0.7


def test_without_a_temperature_the_policy_copies_the_recorded_actions(example):
    share = policies(example("iql_minari"), 0.0, [0.0, 1.0])
    assert torch.allclose(share, torch.full((8,), 0.5), atol=0.1)
