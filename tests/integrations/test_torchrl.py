"""`headrace.integrations.torchrl.ReplayBuffer`: data of TorchRL's environments, and its losses."""

import numpy as np
import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torchrl.data import LazyTensorStorage, MultiStep, OneHot, TensorDictReplayBuffer
from torchrl.envs import GymEnv, StepCounter, TransformedEnv
from torchrl.modules import QValueActor
from torchrl.objectives import DQNLoss

from headrace.errors import SpecError
from headrace.integrations.torchrl import ReplayBuffer

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def rollouts():
    """Two rollouts of 30 steps over the ends of episodes: `[2, 30]`."""
    torch.manual_seed(0)
    env = TransformedEnv(GymEnv("CartPole-v1"), StepCounter(max_steps=12))
    env.set_seed(0)
    return torch.stack([env.rollout(30, break_when_any_done=False) for _ in range(2)]).contiguous()


def by_index(sample):
    """Index to a row of a sample."""
    return {int(row["index"].reshape(-1)[0]): row for row in sample}


def test_the_same_transitions(rollouts):
    buffer, theirs = ReplayBuffer(1000), TensorDictReplayBuffer(storage=LazyTensorStorage(1000))
    index = buffer.extend(rollouts.clone())
    theirs.extend(rollouts.reshape(-1))
    assert index.shape == (2, 30)
    assert len(buffer) == len(theirs) == 60
    found = by_index(buffer.sample(3000))
    assert len(found) == 60
    expected = theirs.sample(5)
    for place, key in enumerate(index.reshape(-1).tolist()):
        stored, written = found[key], rollouts.reshape(-1)[place]
        assert set(stored.keys(True, True)) == set(written.keys(True, True)) | {"index"}
        for name in written.keys(True, True):
            one, other = stored[name], written[name]
            assert (
                (one.dtype, one.shape) == (other.dtype, other.shape) == (expected[0][name].dtype, one.shape)
            )
            assert torch.equal(one, other), name


def test_each_observation_is_stored_once(rollouts):
    buffer = ReplayBuffer(1000)
    buffer.extend(rollouts.clone())
    ends = int(rollouts["next", "done"][:, :-1].sum())
    assert buffer.replay.statistics().store.rows == 60 + 2 + ends


def test_n_step_returns_as_multistep(rollouts):
    buffer = ReplayBuffer(1000, n_steps=3, gamma=0.9)
    index = buffer.extend(rollouts.clone()).reshape(-1).tolist()
    theirs = MultiStep(gamma=0.9, n_steps=3)(rollouts.clone()).reshape(-1)
    found = by_index(buffer.sample(3000))
    for place, key in enumerate(index):
        one, other = found[key], theirs[place]
        # TorchRL keeps the flag of the first step, and so bootstraps where an episode has terminated.
        last = place + int(one["steps_to_next_obs"]) - 1
        assert torch.equal(one["next", "terminated"], rollouts.reshape(-1)[last]["next", "terminated"])
        for name in [("next", "reward"), ("next", "observation"), "steps_to_next_obs"]:
            assert torch.allclose(one[name].float().reshape(-1), other[name].float().reshape(-1)), (
                place,
                name,
            )


def test_a_loss_trains_from_samples(rollouts):
    torch.manual_seed(0)
    net = TensorDictModule(torch.nn.Linear(4, 2), in_keys=["observation"], out_keys=["action_value"])
    actor = QValueActor(net, in_keys=["observation"], spec=OneHot(2))
    loss = DQNLoss(actor, action_space="one-hot", delay_value=False)
    loss.make_value_estimator(gamma=0.5)
    buffer = ReplayBuffer(1000, batch_size=16, n_steps=2, gamma=0.5, priority_exponent=0.6, seed=0)
    buffer.extend(rollouts.clone())
    optimizer = torch.optim.Adam(loss.parameters(), 0.05)
    losses = []
    for _, batch in zip(range(60), buffer, strict=False):
        assert batch["priority_weight"].shape == (16,)
        value = loss(batch)["loss"]
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        buffer.update_tensordict_priority(batch)
        losses.append(float(value.detach()))
    assert np.mean(losses[-10:]) < np.mean(losses[:10])
    assert len(set(buffer.replay.sample("replay", 500).info.priorities)) > 20


def test_priorities_of_what_was_written(rollouts):
    buffer = ReplayBuffer(1000, priority_exponent=1.0)
    data = rollouts[0].clone()
    buffer.extend(data)
    data["td_error"] = torch.arange(30.0)[:, None]
    buffer.update_tensordict_priority(data)
    sample = buffer.sample(8000)
    counts = np.bincount(np.searchsorted(data["index"].numpy(), sample["index"].numpy()), minlength=30)
    np.testing.assert_allclose(counts / 8000, np.arange(30) / 435, atol=0.015)
    later = rollouts[1].clone()
    buffer.extend(later)  # with the largest priority so far
    info = buffer.replay.sample("replay", 4000).info
    new = np.isin(info.keys, later["index"].numpy())
    assert set(info.priorities[new]) == {29.0}


def test_single_transitions_and_what_is_empty():
    following = {
        "observation": torch.ones(3),
        "reward": torch.ones(1),
        "terminated": torch.zeros(1, dtype=torch.bool),
    }
    step = TensorDict({"observation": torch.zeros(3), "action": torch.tensor(1), "next": following}, [])
    buffer = ReplayBuffer(3)
    with pytest.raises(ValueError, match="buffer is empty"):
        buffer.sample(1)
    indexes = [buffer.add(step.clone()) for _ in range(5)]
    assert len(set(indexes)) == 5
    assert len(buffer) == 3
    with pytest.raises(ValueError, match="expected a batch_size"):
        next(iter(buffer))
    with pytest.raises(ValueError, match="priority_exponent"):
        buffer.update_priority(indexes[-1], 1.0)
    assert buffer.sample(2)["action"].tolist() == [1, 1]
    buffer.empty()
    assert len(buffer) == 0


def test_wrong_data_is_refused(rollouts):
    buffer = ReplayBuffer(100)
    data = rollouts[0]
    with pytest.raises(SpecError, match=r"expected the key \('next', 'reward'\)"):
        buffer.extend(data.exclude(("next", "reward")))
    with pytest.raises(SpecError, match="expected the key 'action'"):
        buffer.extend(data.exclude("action"))
    buffer.extend(data.clone())
    other = data.clone()
    other["observation"] = torch.zeros(30, 5)
    with pytest.raises(SpecError, match="observation"):
        buffer.extend(other)
    assert len(buffer) == 30


def test_other_keys_are_kept(rollouts):
    data = rollouts[0].clone()
    data["collector", "traj_ids"] = torch.arange(30)
    data["next", "only_there"] = torch.arange(30.0)
    data["td_error"] = torch.ones(30)
    buffer = ReplayBuffer(100, seed=1)
    buffer.extend(data)
    sample = buffer.sample(8)
    place = sample["collector", "traj_ids"]
    assert torch.equal(sample["next", "only_there"], place.float())
    assert torch.equal(sample["observation"], data["observation"][place])
    # A sample may be written again.
    assert len(set(buffer.extend(sample).tolist())) == 8
