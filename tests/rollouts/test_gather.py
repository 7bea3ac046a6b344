"""Training batches of several workers (views-rollouts R17)."""

import pytest

import headrace as hr


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
