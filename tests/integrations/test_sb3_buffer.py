"""`headrace.integrations.sb3.ReplayBuffer` has the same transitions as SB3's own buffers after the same calls."""

import copy
import pickle

import gymnasium
import numpy as np
import pytest
import torch
from sb3_histories import ACTIONS, BOX, DICT, IMAGE, NUMBER, add_copy, history
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer
from stable_baselines3.common.buffers import ReplayBuffer as Theirs
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from headrace.integrations.sb3 import ReplayBuffer

DICT_OF_BOXES = gymnasium.spaces.Dict({"one": BOX, "two": BOX})


def all_of_theirs(buffer, monkeypatch, env):
    """Every transition of SB3's buffer: a list of batches, one an environment."""
    found = []
    for lane in range(buffer.n_envs):
        with monkeypatch.context() as patch:
            patch.setattr(np.random, "randint", lambda *_, size, lane=lane, **__: np.full(size, lane))
            found.append(buffer._get_samples(np.arange(buffer.size()), env))
    return found


def rows(sample):
    """Maps the bytes of each observation to the fields of its transition."""
    arrays = {}
    for name, value in sample._asdict().items():
        for key, tensor in (value if isinstance(value, dict) else {"": value}).items():
            if tensor is not None and name not in ("keys", "weights"):
                arrays[name, key] = tensor.numpy()
    keys = [name for name in arrays if name[0] == "observations"]
    return {
        b"".join(arrays[key][row].tobytes() for key in keys): {n: a[row] for n, a in arrays.items()}
        for row in range(len(sample.rewards))
    }


def compare(ours, theirs, monkeypatch, *, late, env=None):
    """Compares all transitions; those of the oldest `late` positions may have been removed already."""
    expected = [rows(sample) for sample in all_of_theirs(theirs, monkeypatch, env)]
    drawn = rows(ours.sample(50 * ours.buffer_size * ours.n_envs, env))
    assert len(drawn) == len(ours.replay.table("replay")) == theirs.size() * theirs.n_envs
    both = {key: fields for lane in expected for key, fields in lane.items()}
    assert len(both) == theirs.size() * theirs.n_envs
    if theirs.full:
        assert len(drawn.keys() - both.keys()) <= late * theirs.n_envs
    else:
        assert drawn.keys() == both.keys()
    for key in drawn.keys() & both.keys():
        assert drawn[key].keys() == both[key].keys()
        for name, value in drawn[key].items():
            assert value.dtype == both[key][name].dtype
            assert value.shape == both[key][name].shape
            np.testing.assert_allclose(value, both[key][name], rtol=1e-6, atol=1e-6, err_msg=str(name))


@pytest.mark.parametrize("handle_timeout_termination", [True, False])
@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize("space", [BOX, IMAGE, NUMBER, DICT], ids=["box", "image", "number", "dict"])
@pytest.mark.parametrize("action", ACTIONS)
def test_the_same_transitions(space, action, n_envs, handle_timeout_termination, monkeypatch):
    kind = DictReplayBuffer if space is DICT else Theirs
    arguments = (60, space, ACTIONS[action], "cpu", n_envs)
    options = {"handle_timeout_termination": handle_timeout_termination}
    ours, theirs = ReplayBuffer(*arguments, **options), kind(*arguments, **options)
    for number, call in enumerate(history(space, ACTIONS[action], n_envs, 150 // n_envs)):
        add_copy(ours, call)
        add_copy(theirs, call)
        assert (ours.size(), ours.pos, ours.full) == (theirs.size(), theirs.pos, theirs.full)
        if number == 30 // n_envs:
            ours.cut_episodes()
            compare(ours, theirs, monkeypatch, late=0)
    ours.cut_episodes()
    compare(ours, theirs, monkeypatch, late=1)


@pytest.mark.parametrize("n_steps", [2, 3, 7])
@pytest.mark.parametrize("n_envs", [1, 3])
def test_the_same_n_step_returns(n_steps, n_envs, monkeypatch):
    arguments = (60, BOX, ACTIONS["discrete"], "cpu", n_envs)
    options = {"n_steps": n_steps, "gamma": 0.9}
    ours, theirs = ReplayBuffer(*arguments, **options), NStepReplayBuffer(*arguments, **options)
    for call in history(BOX, ACTIONS["discrete"], n_envs, 150 // n_envs):
        add_copy(ours, call)
        add_copy(theirs, call)
    ours.cut_episodes()
    compare(ours, theirs, monkeypatch, late=n_steps)


def test_each_observation_is_stored_once():
    buffer = ReplayBuffer(1000, BOX, ACTIONS["discrete"], "cpu", 2)
    calls = list(history(BOX, ACTIONS["discrete"], 2, 100))
    for call in calls:
        add_copy(buffer, call)
    ends = sum(int(call.done.sum()) for call in calls)
    assert buffer.replay.statistics().store.rows == 200 + ends


def test_a_jump_ends_the_episode_without_a_flag():
    # As when `learn` resets the environment in the middle of an episode.
    buffer = ReplayBuffer(1000, BOX, ACTIONS["discrete"], "cpu", n_steps=3, gamma=0.5)
    calls = [call for call in history(BOX, ACTIONS["discrete"], 1, 100) if not call.done[0]][:9]
    for number, call in enumerate(calls):
        observation = call.obs + 1000 * (number >= 4)
        buffer.add(observation, call.next_obs + 1000 * (number >= 4), *call[2:])
    buffer.cut_episodes()
    found = rows(buffer.sample(500))
    assert len(found) == 9
    last = found[calls[3].obs.tobytes()]
    assert last["dones", ""] == 0
    assert last["discounts", ""] == 0.5
    np.testing.assert_array_equal(last["next_observations", ""], calls[3].next_obs[0])


def test_a_refused_call_changes_nothing():
    buffer = ReplayBuffer(100, BOX, ACTIONS["discrete"], "cpu")
    first, second, third = list(history(BOX, ACTIONS["discrete"], 1, 3, seed=1))
    assert not first.done or second.done
    for call in (first, second):
        for wrong in (
            call._replace(action=np.array([0.5])),
            call._replace(next_obs=call.next_obs.astype(complex)),
        ):
            with pytest.raises(ValueError, match="action|observation"):
                buffer.add(*wrong)
        assert buffer.size() == (call is second)
        buffer.add(*call)
    buffer.add(*third)
    buffer.cut_episodes()
    assert len(rows(buffer.sample(100))) == 3
    assert buffer.replay.statistics().store.rows == 4


def test_an_empty_buffer_says_so():
    buffer = ReplayBuffer(100, BOX, ACTIONS["discrete"], "cpu")
    with pytest.raises(ValueError, match="buffer is empty; add transitions first"):
        buffer.sample(1)


def test_the_first_transition_can_be_sampled():
    buffer = ReplayBuffer(100, BOX, ACTIONS["discrete"], "cpu", n_steps=5)
    call, following = list(history(BOX, ACTIONS["discrete"], 1, 2, seed=1))
    assert not call.done
    buffer.add(*call)
    assert torch.equal(buffer.sample(4).next_observations, torch.tensor(call.next_obs).expand(4, 3))
    buffer.add(*following)
    assert buffer.size() == 2


def test_reset_removes_everything():
    buffer = ReplayBuffer(100, BOX, ACTIONS["discrete"], "cpu", 2)
    for _ in range(2):
        for call in history(BOX, ACTIONS["discrete"], 2, 10):
            buffer.add(*call)
        buffer.reset()
        assert (buffer.size(), buffer.pos, buffer.full, len(buffer.replay.table("replay"))) == (
            0,
            0,
            False,
            0,
        )


def test_samples_follow_numpys_seed():
    samples = []
    for _ in range(2):
        np.random.seed(3)  # noqa: NPY002 - what SB3 seeds
        buffer = ReplayBuffer(100, BOX, ACTIONS["discrete"], "cpu")
        for call in history(BOX, ACTIONS["discrete"], 1, 50):
            buffer.add(*call)
        samples.append(buffer.sample(16).observations)
    assert torch.equal(*samples)


class Environment(gymnasium.Env):
    """Has spaces, and nothing else."""

    def __init__(self, space):
        self.observation_space, self.action_space = space, ACTIONS["discrete"]


@pytest.mark.parametrize(
    ("space", "n_steps"), [(BOX, 1), (BOX, 3), (DICT_OF_BOXES, 1)], ids=["one step", "n steps", "dict"]
)
def test_normalized_samples(space, n_steps, monkeypatch):
    env = VecNormalize(DummyVecEnv([lambda: Environment(space)]), clip_reward=0.5, clip_obs=2.0)
    statistics = [env.obs_rms] if space is BOX else env.obs_rms.values()
    for each in statistics:
        each.mean, each.var = each.mean + 3.0, each.var * 4.0
    env.ret_rms.var = np.float64(9.0)
    kind = DictReplayBuffer if space is not BOX else NStepReplayBuffer if n_steps > 1 else Theirs
    options = {"n_steps": n_steps, "gamma": 0.9} if n_steps > 1 else {}
    arguments = (200, space, ACTIONS["discrete"], "cpu")
    ours, theirs = ReplayBuffer(*arguments, **options), kind(*arguments, **options)
    for call in history(space, ACTIONS["discrete"], 1, 100):
        add_copy(ours, call)
        add_copy(theirs, call)
    ours.cut_episodes()
    theirs_all, drawn = all_of_theirs(theirs, monkeypatch, env), ours.sample(10_000, env)
    for name in ("rewards", "dones"):
        expected = torch.cat([getattr(each, name) for each in theirs_all]).numpy()
        found = getattr(drawn, name).numpy()
        np.testing.assert_allclose(np.unique(found.round(5)), np.unique(expected.round(5)), atol=2e-5)
    for name in ("observations", "next_observations"):
        expected, found = getattr(theirs_all[0], name), getattr(drawn, name)
        for key in space.spaces if space is not BOX else [None]:
            one, other = (found, expected) if key is None else (found[key], expected[key])
            assert one.dtype == other.dtype
            assert {row.tobytes() for row in one.numpy()} == {row.tobytes() for row in other.numpy()}


@pytest.mark.parametrize("copied", [lambda each: pickle.loads(pickle.dumps(each)), copy.deepcopy])
@pytest.mark.parametrize("priority_exponent", [None, 0.6])
def test_a_saved_buffer_goes_on(copied, priority_exponent):
    buffer = ReplayBuffer(
        60, DICT, ACTIONS["discrete"], "cpu", 2, n_steps=2, priority_exponent=priority_exponent
    )
    calls = list(history(DICT, ACTIONS["discrete"], 2, 60))
    for call in calls[:50]:
        add_copy(buffer, call)
    if priority_exponent is not None:
        buffer.update_priorities(buffer.sample(30).keys, np.arange(1.0, 31.0))
    other = copied(buffer)
    for call in calls[50:]:
        add_copy(buffer, call)
        add_copy(other, call)
    assert (other.size(), other.pos, other.full) == (buffer.size(), buffer.pos, buffer.full)
    for each in (buffer, other):
        each.cut_episodes()
    one, two = rows(buffer.sample(4000)), rows(other.sample(4000))
    assert one.keys() == two.keys()
    assert len(one) == 60
    for key, fields in one.items():
        for name, value in fields.items():
            np.testing.assert_array_equal(value, two[key][name])
