"""Batches of RLlib and of Headrace."""

import gymnasium
import numpy as np
import pytest
import torch
from ray.rllib.policy import sample_batch as theirs

import headrace as hr
from headrace.integrations.rllib import from_rllib, to_rllib
from headrace.rollouts import BatchWriter

pytestmark = pytest.mark.filterwarnings("ignore")


def rollout():
    def policy(observation):
        return np.arange(len(observation)) % 2

    with hr.RolloutWorker(
        lambda: gymnasium.make("CartPole-v1"), policy, rollout_fragment_length=40, seed=0
    ) as worker:
        return worker.sample()


def check_equal(one, other):
    assert set(one) == set(other)
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])
        assert one[name].dtype == other[name].dtype


def test_there_and_back():
    batch = rollout()
    converted = to_rllib(batch)
    assert isinstance(converted, theirs.SampleBatch)
    assert {"obs", "new_obs", "actions", "rewards", "terminateds", "truncateds", "eps_id", "t"} <= set(
        converted
    )
    assert len(converted) == 40
    np.testing.assert_array_equal(converted["dones"], batch["terminated"] | batch["truncated"])
    episodes = converted.split_by_episode()
    assert [len(each) for each in episodes] == [each.count for each in batch.split_by_episode()]
    check_equal(from_rllib(converted), batch)


def test_several_policies():
    batch = hr.MultiAgentBatch({"one": rollout(), "two": rollout()[:7]}, env_steps=40)
    converted = to_rllib(batch)
    assert isinstance(converted, theirs.MultiAgentBatch)
    assert (converted.env_steps(), converted.agent_steps()) == (40, 47)
    back = from_rllib(converted)
    assert (back.env_steps(), back.agent_steps()) == (40, 47)
    for name in ("one", "two"):
        check_equal(back[name], batch[name])


def test_padded_sequences_and_states():
    columns = {
        "obs": torch.arange(8.0).reshape(8, 1),
        "state_in_0": np.arange(2.0)[:, None],
        "infos": np.array([{}] * 8),
        "seq_lens": np.array([3, 2], np.int32),
    }
    batch = from_rllib(theirs.SampleBatch(columns, _max_seq_len=4, _zero_padded=True))
    assert batch["observation"][:, 0].tolist() == [0, 1, 2, 4, 5]
    assert batch.seq_lens.tolist() == [3, 2]
    assert batch.max_seq_len == 4
    assert batch["state_in_0"].shape == (2, 1)
    back = to_rllib(batch.right_zero_pad(4))
    assert back["seq_lens"].tolist() == [3, 2]
    np.testing.assert_array_equal(back["obs"], batch["observation"])


def test_a_batch_of_rllib_into_a_replay():
    batch = to_rllib(rollout())
    step = {
        "observation": np.zeros(4, np.float32), "action": 0, "reward": 0.0, "terminated": False, "truncated": False,
    }  # fmt: skip
    with hr.Replay(hr.Signature.like(step), [hr.Table.uniform(100)], seed=0) as replay:
        with BatchWriter(replay, [hr.NStepRule("replay")]) as writer:
            writer.write(from_rllib(batch))
        assert len(replay.table("replay")) == 40
        sample = replay.sample(100, views=hr.views.transition())
        assert {each.tobytes() for each in sample["observation"]} <= {each.tobytes() for each in batch["obs"]}
