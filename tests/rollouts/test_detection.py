"""Columns that a policy's loss does not read (views-rollouts D4)."""

from typing import Any

import numpy as np
import pytest
from counting_rollouts import Recurrent, counters, worker

import headrace as hr

BOOKKEEPING = {"episode_id", "t", "env_t", "fragment_id", "env_id", "agent_index"}
OUTCOME = {"reward", "terminated", "truncated"}


class Learning(Recurrent):
    """Has a loss that reads some columns, and postprocessing that adds one."""

    def __init__(self, views: dict[str, hr.View] | None = None) -> None:
        super().__init__(views)
        self.batches: list[Any] = []

    def loss(self, batch):
        self.batches.append(batch)
        batch["observation"][:] = 0
        return batch["doubled"].sum() + batch["stack"].sum()


VIEWS = {
    "stack": hr.View("observation", shift="-1:0", mask=True),
    "unread": hr.View("reward", shift=-1, mask=True),
}


@pytest.mark.parametrize("postprocess", [False, True])
def test_columns_that_the_loss_does_not_read_are_left_out(postprocess: bool):
    policy = Learning(VIEWS)
    if postprocess:

        def postprocess_trajectory(batch: Any, others: Any, episode: Any) -> None:
            assert "next_observation" in batch
            batch["return"] = batch["reward"]

        policy.postprocess_trajectory = postprocess_trajectory  # type: ignore[attr-defined]
    with worker(counters(50), policy, rollout_fragment_length=50) as made:
        batches = [made.sample(), made.sample()]
        pruned = made.pruned["default_policy"]
    assert pruned == {
        *("action", "next_observation", "unread"),
        *("state_in_0", "state_in_1", "state_out_0", "state_out_1"),
    }
    added = {"return"} if postprocess else set()
    for batch in batches:
        kept = BOOKKEEPING | OUTCOME | {"observation", "doubled", "stack", "stack_mask"} | added
        assert set(batch) == kept
    assert len(policy.batches) == 1
    assert policy.batches[0].count == 32
    assert batches[0]["observation"][5].tolist() == [0, 0, 5]


def test_whole_sequences_are_shown_to_the_loss():
    class Sequences(Learning):
        def loss(self, batch):
            self.batches.append((batch.seq_lens.tolist(), batch["state_in_0"].tolist()))

    policy = Sequences()
    with worker(counters(50), policy, max_seq_len=5, rollout_fragment_length=50) as made:
        batch = made.sample()
    assert policy.batches == [([5] * 6, [0, 5, 10, 15, 20, 25])]
    assert batch.seq_lens.tolist() == [5] * 10
    assert "state_in_0" in batch
    assert "state_in_1" not in batch


def test_detection_can_be_switched_off():
    policy = Learning(VIEWS)
    with worker(counters(50), policy, detect_columns=False) as made:
        assert "next_observation" in made.sample()
        assert made.pruned == {}
    assert not policy.batches


def test_an_error_of_the_loss_is_raised():
    # D2
    class Failing(Learning):
        def loss(self, batch):
            raise ArithmeticError("no loss")

    with worker(counters(50), Failing()) as made, pytest.raises(ArithmeticError, match="no loss"):
        made.sample()


def test_a_view_that_is_changed_is_shown_again():
    # R9
    with worker(counters(50), Learning(VIEWS), views={}) as made:
        assert "action" not in made.sample()
        made.views["action"] = hr.View("action", shift=-1)
        assert np.array_equal(made.sample()["action"], [1, 2, 3, 0, 1, 2])
