"""Batches and buffers of Tianshou, and transitions."""

import gymnasium
import numpy as np
import pytest
from tianshou.data import Batch, VectorReplayBuffer

import headrace as hr
from headrace.errors import SpecError
from headrace.integrations.tianshou import from_tianshou, to_tianshou

pytestmark = pytest.mark.filterwarnings("ignore")


def filled():
    """A buffer of Tianshou with 2 environments of 30 steps of CartPole."""
    buffer = VectorReplayBuffer(200, 2)
    for lane in range(2):
        env = gymnasium.make("CartPole-v1", max_episode_steps=12)
        env.action_space.seed(lane)
        obs, _ = env.reset(seed=lane)
        for _ in range(30):
            act = env.action_space.sample()
            following, rew, terminated, truncated, _ = env.step(act)
            entry = {"obs": obs, "act": act, "rew": rew, "terminated": terminated, "truncated": truncated}
            row = Batch(**entry, obs_next=following, info={})
            buffer.add(Batch.stack([row]), buffer_ids=[lane])
            obs = env.reset()[0] if terminated or truncated else following
    return buffer


def new_replay():
    step = {
        "observation": np.zeros(4, np.float32), "action": 0, "reward": 0.0, "terminated": False, "truncated": False,
    }  # fmt: skip
    return hr.Replay(hr.Signature.like(step), [hr.Table.prioritized(1000, 1.0)], seed=0)


def test_a_buffer_into_a_replay_and_back():
    batch = filled().sample(0)[0]
    with new_replay() as replay:
        with hr.TransitionWriter(replay, "replay") as writer:
            keys = writer.extend(**from_tianshou(batch))
        ends = int((batch.terminated | batch.truncated).sum())
        assert replay.statistics().store.rows <= 60 + ends + 2
        sample = replay.sample(2000, views=writer.views)
        found = to_tianshou(sample)
        assert isinstance(found, Batch)
        assert set(found.info.key) == set(keys)
        place = np.searchsorted(keys, found.info.key)
        for name in ("obs", "act", "rew", "terminated", "truncated", "done", "obs_next"):
            np.testing.assert_array_equal(found[name], batch[name][place], err_msg=name)
        assert set(found.info.get_keys()) == {"discount", "n", "key"}
        assert replay.update_priorities("replay", found.info.key, np.ones(len(found))) == 2000


def test_nested_observations():
    columns = {name: np.zeros(3) for name in ("act", "rew")} | {
        n: np.zeros(3, bool) for n in ("terminated", "truncated")
    }
    batch = Batch(**columns, obs=Batch(one=np.arange(3)), obs_next=Batch(one=np.arange(1, 4)))
    found = from_tianshou(batch)
    assert found["observation"]["one"].tolist() == [0, 1, 2]
    assert to_tianshou(found).obs_next.one.tolist() == [1, 2, 3]


def test_what_is_missing_is_named():
    with pytest.raises(SpecError, match="missing: terminated, truncated, obs_next"):
        from_tianshou(Batch(obs=np.zeros(2), act=np.zeros(2), rew=np.zeros(2)))
    with pytest.raises(SpecError, match="missing: action, reward"):
        to_tianshou(
            {name: np.zeros(2) for name in ("observation", "terminated", "truncated", "next_observation")}
        )
