"""Training batches of several workers (views-rollouts R17)."""

from contextlib import ExitStack

import numpy as np
import pytest
from counting_rollouts import counters, worker

import headrace as hr


@pytest.fixture
def closing():
    """Closes the workers of a test."""
    with ExitStack() as stack:
        yield stack


class Worker:
    """Samples batches of these sizes; its rows say who sampled them and when."""

    def __init__(self, number, sizes):
        self.number, self.sizes, self.calls = number, sizes, 0

    def sample(self):
        rows = self.sizes[self.calls % len(self.sizes)]
        self.calls += 1
        return hr.SampleBatch({"worker": [self.number] * rows, "call": [self.calls] * rows})


class MultiAgentWorker(Worker):
    """Two agents, of which each acts at every step."""

    def sample(self):
        batch = super().sample()
        return hr.MultiAgentBatch({"a": batch, "b": batch}, batch.count)


def test_rounds_until_there_are_enough_steps():
    workers = [Worker(0, [200]), Worker(1, [200])]
    batch = hr.rollouts.gather(workers, 1000)
    assert batch.count == 1200
    assert [worker.calls for worker in workers] == [3, 3]
    fragments = list(zip(batch["call"].tolist(), batch["worker"].tolist(), strict=True))
    assert fragments == sorted(fragments)


def test_a_round_that_reaches_the_size_is_the_last():
    workers = [Worker(0, [3, 1]), Worker(1, [2])]
    assert hr.rollouts.gather(workers, 5).count == 5
    assert hr.rollouts.gather(workers, 5).count == 8


@pytest.mark.parametrize(("unit", "rounds"), [("env_steps", 4), ("agent_steps", 2)])
def test_units(unit, rounds):
    worker = MultiAgentWorker(0, [10])
    batch = hr.rollouts.gather([worker], 40, count_steps_by=unit)
    assert worker.calls == rounds
    assert (batch.env_steps(), batch.agent_steps()) == (10 * rounds, 20 * rounds)


def test_errors():
    with pytest.raises(ValueError, match="^train_batch_size: expected an integer >= 1"):
        hr.rollouts.gather([Worker(0, [1])], 0)
    with pytest.raises(
        ValueError, match="^count_steps_by: expected one of 'env_steps', 'agent_steps', got 'rows'"
    ):
        hr.rollouts.gather([Worker(0, [1])], 1, count_steps_by="rows")
    with pytest.raises(ValueError, match="^workers: expected at least one"):
        hr.rollouts.gather([], 1)
    with pytest.raises(TypeError, match="^workers: expected a list of workers, got"):
        hr.rollouts.gather(Worker(0, [1]), 1)


def test_no_two_workers_have_the_same_numbers(closing):
    # R8, B4, B7: rows of two workers in their first episodes lie side by side, and are two episodes
    workers = [closing.enter_context(worker(counters(6), rollout_fragment_length=4)) for _ in range(3)]
    first, second = (hr.rollouts.gather(workers, 12) for _ in range(2))
    assert first["episode_id"].tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert second["episode_id"].tolist() == [0, 0, 3, 3, 1, 1, 4, 4, 2, 2, 5, 5]
    assert second["env_id"].tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert [part["t"].tolist() for part in first.split_by_episode()] == [[0, 1, 2, 3]] * 3
    assert first.chop(9).seq_lens.tolist() == [4, 4, 4]


def test_the_numbers_of_one_worker_stay():
    with worker(counters(2), num_envs=2) as made:
        assert hr.rollouts.gather([made], 12)["episode_id"].tolist() == [0, 0, 2, 2, 4, 4, 1, 1, 3, 3, 5, 5]


def test_batches_of_several_agents_have_numbers_of_their_workers():
    class Numbered:
        def sample(self):
            return hr.MultiAgentBatch({"a": self.rows(), "b": self.rows()}, 2)

        def rows(self):
            return hr.SampleBatch({"episode_id": [5, 6], "t": [0, 0]}, seq_lens=[1, 1])

    batch = hr.rollouts.gather([Numbered(), Numbered()], 4)
    assert {name: each["episode_id"].tolist() for name, each in batch.policy_batches.items()} == {
        "a": [10, 12, 11, 13],
        "b": [10, 12, 11, 13],
    }
    assert batch["a"].seq_lens.tolist() == [1, 1, 1, 1]


def test_rows_of_several_workers_are_episodes_of_a_replay(closing):
    # Each worker has lanes of its own, so that no episode ends where the next worker's rows begin.
    workers = [closing.enter_context(worker(counters(6), rollout_fragment_length=4)) for _ in range(2)]
    step = {
        "observation": np.zeros(3, np.int64),
        "action": 0,
        "reward": 0.0,
        "terminated": False,
        "truncated": False,
    }
    with hr.Replay(hr.Signature.like(step), [hr.Table.queue("episodes", 9)]) as replay:
        with hr.rollouts.BatchWriter(replay, [hr.EpisodeRule("episodes", 9)]) as writer:
            for _ in range(3):
                writer.write(hr.rollouts.gather(workers, 8))
        batch = replay.sample("episodes", 4)
    assert batch["observation"][:, :6, 2].tolist() == [[*range(6)]] * 4
