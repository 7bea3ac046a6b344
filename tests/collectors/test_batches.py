"""Contents of batches: inline, and byte for byte the same from a worker."""

import contextlib
import sys

import cloudpickle
import numpy as np
import optree
import pytest
from gymnasium import spaces
from gymnasium.vector import VectorEnv

import headrace as hr
from headrace.testing import CounterEnv, counter_env_fns, counter_vector_env, in_turn

cloudpickle.register_pickle_by_value(sys.modules[__name__])

MODES = ["disabled", "same_step", "next_step"]
COLUMNS = [
    "observation", "action", "reward", "terminated", "truncated", "next_observation", "episode_id", "t",
    "policy_version", "mask",
]  # fmt: skip


def same(one, other):
    """Byte for byte, in every column."""
    assert list(one) == list(other)
    for a, b in zip(optree.tree_leaves(dict(one)), optree.tree_leaves(dict(other)), strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("frames", [4, 7, 12])
@pytest.mark.parametrize("lengths", [[3], [1], [3, 5, 4], [[3, 1, 2], 7]])
def test_single_environments(counters, policy, take, lengths, frames):
    fns = in_turn(counter_env_fns(lengths))
    with (
        pytest.warns(UserWarning, match="no multiple") if frames % len(lengths) else contextlib.nullcontext()
    ):
        collector = hr.Collector(fns, policy, frames_per_batch=frames, num_envs=len(lengths))
    with collector:
        batches = take(collector, 7)
        steps = -(-frames // len(lengths))
        assert all(batch.shape == (len(lengths), steps) for batch in batches)  # CB1, CB7
        counters(batches, lengths, action=policy)
        assert list(batches[0]) == COLUMNS


@pytest.mark.parametrize("ending", ["terminated", "truncated", "both"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("lengths", [[3], [3, 5, 1], [[2, 1, 4], [1, 3], 2, 6]])
def test_vector_environments(counters, policy, take, mode, lengths, ending):
    # CE4: the same transitions in the three modes; NEXT_STEP has one masked row an episode.
    env = counter_vector_env(lengths, mode, ending=ending)
    with hr.Collector(env, policy, frames_per_batch=5 * len(lengths)) as collector:
        batches = take(collector, 6)
    if ending == "terminated":
        counters(batches, lengths, action=policy)
    for batch in batches:
        ended = batch["terminated"] | batch["truncated"]
        if ending == "both":
            np.testing.assert_array_equal(batch["terminated"], batch["truncated"])
        elif ending == "truncated":
            assert not batch["terminated"].any()
            assert ended.any()
    if mode != "next_step":
        assert all(batch["mask"].all() for batch in batches)


def test_next_step_has_the_share_of_the_closed_form(take):
    # Part 15: period E + 1, the last of which is masked.
    with hr.Collector(counter_vector_env([4, 4], "next_step"), frames_per_batch=20) as collector:
        batches = take(collector, 2)
        assert sum(batch.frames for batch in batches) == 2 * 20 * 4 // 5
        assert collector.statistics().frames == 32
    mask = np.concatenate([batch["mask"] for batch in batches], axis=1)
    np.testing.assert_array_equal(mask[0], np.arange(20) % 5 != 4)


@pytest.mark.parametrize("limit", [1, 2, 3, 5])
@pytest.mark.parametrize("kind", ["single", *MODES])
def test_limit(counters, policy, take, kind, limit):
    # CR5: also for environments of the three modes, over batch borders; where both ends meet both flags are true.
    lengths = [3, 5, 4]
    made = in_turn(counter_env_fns(lengths)) if kind == "single" else counter_vector_env(lengths, kind)
    num_envs = 3 if kind == "single" else 1
    with hr.Collector(
        made, policy, frames_per_batch=12, num_envs=num_envs, max_frames_per_traj=limit
    ) as collector:
        counters(take(collector, 8), lengths, limit=limit, action=policy)


@pytest.mark.parametrize("limit", [None, 0, -3])
def test_no_limit(counters, take, limit):
    with hr.Collector(lambda: CounterEnv(5), frames_per_batch=7, max_frames_per_traj=limit) as collector:
        counters(take(collector, 5), [5])


def test_limit_needs_a_reset_by_mask():
    env = counter_vector_env([3], "same_step")

    class Own(VectorEnv):
        """Not known to take a mask: gymnasium asks for that in the mode DISABLED only."""

        num_envs = 1
        metadata = env.metadata
        single_observation_space, single_action_space = env.single_observation_space, env.single_action_space
        observation_space, action_space = env.observation_space, env.action_space

    with pytest.raises(ValueError, match="reset by mask"):
        hr.Collector(Own(), frames_per_batch=4, max_frames_per_traj=3)
    with hr.Collector(Own(), frames_per_batch=4, max_frames_per_traj=0):
        pass


def test_example_of_the_page(take):
    # Part 15: E = 3, B = 4.
    with hr.Collector(lambda: CounterEnv(3), frames_per_batch=4) as collector:
        one, two = take(collector, 2)
    assert one["t"].tolist() == [[0, 1, 2, 0]]
    assert one["episode_id"].tolist() == [[0, 0, 0, 1]]
    assert two["t"].tolist() == [[1, 2, 0, 1]]
    assert two["episode_id"].tolist() == [[1, 1, 2, 2]]


def test_a_reset_costs_the_other_environments_nothing(take):
    # CE6: each takes one step a row, whoever is reset meanwhile, and is reset at its own ends alone.
    lengths = [2, 5, 13]
    envs = [CounterEnv(length, copy=copy) for copy, length in enumerate(lengths)]
    with hr.Collector(
        in_turn([lambda env=env: env for env in envs]), num_envs=3, frames_per_batch=30
    ) as collector:
        take(collector, 4)
    assert [len(env.actions) for env in envs] == [40, 40, 40]
    assert [len(env.seeds) for env in envs] == [1 + 40 // length for length in lengths]


def test_alignment(take):
    # CB4: within a trajectory the next observation is that of the next row.
    with hr.Collector(in_turn(counter_env_fns([4, 7])), frames_per_batch=40, num_envs=2) as collector:
        (batch,) = take(collector, 1)
    same_trajectory = batch["episode_id"][:, :-1] == batch["episode_id"][:, 1:]
    assert same_trajectory.any()
    assert not same_trajectory.all()
    np.testing.assert_array_equal(
        batch["next_observation"][:, :-1][same_trajectory], batch["observation"][:, 1:][same_trajectory]
    )


def test_dtypes(take):
    # CB3.
    with hr.Collector(lambda: CounterEnv(3, layout="image"), frames_per_batch=4) as collector:
        (batch,) = take(collector, 1)
    told = {name: str(batch[name].dtype) for name in batch}
    assert told == {
        "observation": "uint8", "action": "int64", "reward": "float32", "terminated": "bool", "truncated": "bool",
        "next_observation": "uint8", "episode_id": "int64", "t": "int64", "policy_version": "int64", "mask": "bool",
    }  # fmt: skip
    assert batch["observation"].shape == (1, 4, 8, 8, 3)


@pytest.mark.parametrize("layout", ["dict", "tuple"])
@pytest.mark.parametrize("kind", ["single", *MODES])
def test_trees_of_observations(policy, take, layout, kind):
    lengths = [3, 5]
    made = (
        in_turn(counter_env_fns(lengths, layout=layout))
        if kind == "single"
        else counter_vector_env(lengths, kind, layout=layout)
    )
    with hr.Collector(made, policy, frames_per_batch=14, num_envs=2 if kind == "single" else 1) as collector:
        batches = take(collector, 3)
    count, copy = ("count", "copy") if layout == "dict" else (0, 1)
    for batch in batches:
        mask = batch["mask"]
        seen, following = batch["observation"], batch["next_observation"]
        assert (seen[copy][mask][:, 0] == np.nonzero(mask)[0]).all()
        np.testing.assert_array_equal(following[count][mask], seen[count][mask] + [0, 1])
        np.testing.assert_array_equal(following[copy][mask], seen[copy][mask])
        np.testing.assert_array_equal(seen[count][mask][:, 1], batch["t"][mask])
        # CB2: a leaf by its path.
        path = f"observation/{count}"
        assert batch[path] is seen[count]
        assert batch.observation[count] is seen[count]


class ManyActions(CounterEnv):
    """A counter that checks actions of several parts."""

    def __init__(self, space):
        super().__init__(4)
        self.action_space = space

    def step(self, action):
        assert self.action_space.contains(action), action
        return super().step(0)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Dict(turn=spaces.Box(-1, 1, (2,)), jump=spaces.Discrete(3)),
        spaces.Tuple((spaces.Box(-1, 1, (2,)), spaces.Discrete(3))),
    ],
)
def test_trees_of_actions(take, space):
    # CP3: where the action space is a Tuple, a pair is the actions and no pair of actions and extras.
    def policy(observation):
        parts = (np.full((len(observation), 2), 0.5), np.arange(len(observation)))
        return parts if isinstance(space, spaces.Tuple) else {"turn": parts[0], "jump": parts[1]}

    def make():
        return ManyActions(space)

    with hr.Collector(make, policy, frames_per_batch=6, num_envs=2) as collector:
        (batch,) = take(collector, 1)
    turn, jump = ("turn", "jump") if isinstance(space, spaces.Dict) else (0, 1)
    assert batch["action"][turn].dtype == np.float32
    assert (batch["action"][turn] == 0.5).all()
    assert batch["action"][jump].tolist() == [[0, 0, 0], [1, 1, 1]]
    with hr.Collector(make, frames_per_batch=6, num_envs=2, seed=0) as collector:
        (batch,) = take(collector, 1)
    assert (np.abs(batch["action"][turn]) <= 1).all()


def test_extras(take):
    # CP3: what a policy adds are columns.
    def policy(observation):
        return np.zeros(len(observation), int), {
            "value": observation[:, 2] * 0.5,
            "logits": np.ones((len(observation), 4), np.float32),
        }

    with hr.Collector(in_turn(counter_env_fns([3, 5])), policy, frames_per_batch=14, num_envs=2) as collector:
        for batch in take(collector, 2):
            assert list(batch) == [*COLUMNS, "value", "logits"]
            np.testing.assert_array_equal(batch["value"], batch["t"] * 0.5)
            assert batch["logits"].shape == (2, 7, 4)


def test_extras_that_are_refused(take):
    def collect(policy):
        with hr.Collector(lambda: CounterEnv(3), policy, frames_per_batch=4) as collector:
            take(collector, 1)

    with pytest.raises(hr.SpecError, match="mask"):
        collect(lambda observation: (np.zeros(1, int), {"mask": np.zeros(1)}))
    calls = []

    def changing(observation):
        calls.append(1)
        return np.zeros(1, int), {"a" if len(calls) < 3 else "b": np.zeros(1)}

    with pytest.raises(hr.SpecError, match="'a'"):
        collect(changing)
    with pytest.raises(hr.SpecError, match="value"):
        collect(lambda observation: (np.zeros(1, int), {"value": np.zeros(3)}))


@pytest.mark.parametrize(
    "returned", [np.zeros(2, int), np.array([2.9]), np.array([2.0]), np.zeros((1, 1), int), "left"]
)
def test_actions_that_do_not_fit(take, returned):
    # CP1: a wrong leading size, shape or kind is an error with the path.
    with hr.Collector(lambda: CounterEnv(3), lambda _: returned, frames_per_batch=4) as collector:
        with pytest.raises(hr.SpecError, match="action"):
            take(collector, 1)


def test_policy_is_called_once_a_step(take):
    calls = []

    def policy(observation):
        calls.append(observation.shape)
        return np.zeros(len(observation), int)

    with hr.Collector(lambda: CounterEnv(3), policy, frames_per_batch=10, num_envs=2) as collector:
        take(collector, 3)
    assert calls == [(2, 3)] * 15


@pytest.mark.parametrize("kind", [hr.Collector, hr.AsyncCollector])
def test_random_frames(kind, rows_by_copy, take):
    # CR4: whole batches at random, without a call of the policy; then the policy, from where the environments are.
    def policy(observation):
        assert (observation[:, 2] + 4 * observation[:, 1] >= 10).all(), "called too early"
        return np.full(len(observation), 3), {"value": observation[:, 2].astype(np.float32)}

    with kind(lambda: CounterEnv(4), policy, frames_per_batch=5, init_random_frames=8, seed=3) as collector:
        batches = take(collector, 5)
    for batch in batches[:2]:
        assert (batch["policy_version"] == -1).all()
        assert "value" not in batch
    assert len(set(np.concatenate([b["action"][0] for b in batches[:2]]).tolist())) > 1
    for batch in batches[2:]:
        assert (batch["policy_version"] == 0).all()
        assert (batch["action"] == 3).all()
        np.testing.assert_array_equal(batch["value"], batch["t"])
    steps = np.concatenate([batch["t"][0] for batch in batches])
    np.testing.assert_array_equal(steps, np.arange(25) % 4)


@pytest.mark.parametrize("random_frames", [None, 0, -5])
def test_no_random_frames(take, random_frames):
    with hr.Collector(
        lambda: CounterEnv(4),
        lambda observation: np.full(1, 2),
        frames_per_batch=5,
        init_random_frames=random_frames,
    ) as collector:
        assert (take(collector, 1)[0]["action"] == 2).all()


def test_batches_stay_as_they_were(policy, take):
    # CB8: writable, the user's own, never changed, also after the collector is gone.
    with hr.Collector(in_turn(counter_env_fns([3, 5])), policy, frames_per_batch=8, num_envs=2) as collector:
        (first,) = take(collector, 1)
        copies = {name: column.copy() for name, column in first.items()}
        take(collector, 3)
        for name, column in first.items():
            np.testing.assert_array_equal(column, copies[name])
            column[...] = 0
        (later,) = take(collector, 1)
        assert (later["observation"][1, :, 0] == 1).all()
    assert (later["observation"][1, :, 0] == 1).all()


def test_cb2_columns_cannot_be_assigned(take):
    with hr.Collector(lambda: CounterEnv(3), frames_per_batch=4) as collector:
        (batch,) = take(collector, 1)
    before = batch["reward"].copy()
    with pytest.raises(AttributeError, match="reward: expected no assignment.*with_columns"):
        batch.reward = before * 2
    with pytest.raises(TypeError, match="reward: expected no assignment.*with_columns"):
        batch["reward"] = before * 2
    np.testing.assert_array_equal(batch["reward"], before)
    # Neither a new one: it would not be part of `flatten`.
    with pytest.raises(AttributeError, match="advantage: expected no assignment.*with_columns"):
        batch.advantage = before
    with pytest.raises(TypeError, match=r"with_columns\({'advantage': ...}\)"):
        batch["advantage"] = before


@pytest.mark.parametrize("key", [0, slice(None), (slice(None), 0), ("next", "observation"), None, 2.5])
def test_cb2_rows_are_read_from_columns(take, key):
    with hr.Collector(lambda: CounterEnv(3), frames_per_batch=4) as collector:
        (batch,) = take(collector, 1)
    with pytest.raises(KeyError, match=r"expected the name of a column.*batch\['reward'\]\[0\]"):
        batch[key]
    assert key not in batch


def test_access(take):
    # CB2.
    with hr.Collector(counter_vector_env([2, 3], "next_step"), frames_per_batch=10) as collector:
        (batch,) = take(collector, 1)
    assert batch.worker_idx is None
    assert batch.reward is batch["reward"]
    assert batch.frames == int(batch["mask"].sum()) < 10
    flat = batch.flatten()
    assert flat.shape == (batch.frames,)
    np.testing.assert_array_equal(flat["t"], batch["t"][batch["mask"]])
    doubled = optree.tree_map(lambda leaf: leaf * 2, batch)
    assert isinstance(doubled, hr.Batch)
    np.testing.assert_array_equal(doubled["t"], batch["t"] * 2)
    assert batch.numpy()["reward"] is batch["reward"]
    with pytest.raises(KeyError, match="reward"):
        batch["rewards"]
    with pytest.raises(AttributeError, match="rewards"):
        _ = batch.rewards
    with pytest.raises(TypeError):
        batch["reward"] = 3
    assert "[2, 5]" in repr(batch)
    assert "policy version -1" in repr(batch)


def test_cb2_jax_maps_and_compiles_over_a_batch():
    jax = pytest.importorskip("jax")
    batch = hr.Batch({"mask": np.ones((1, 2), bool), "reward": np.ones((1, 2), np.float32)}, worker_idx=3)
    total, back = jax.jit(lambda given: (given.reward.sum(), given))(batch)
    assert (float(total), type(back), back.worker_idx, back.frames) == (2.0, hr.Batch, 3, 2)


def test_torch_shares_memory(take):
    pytest.importorskip("torch")
    with hr.Collector(lambda: CounterEnv(3, layout="dict"), frames_per_batch=4) as collector:
        (batch,) = take(collector, 1)
    tensors = batch.torch()
    tensors["reward"][0, 0] = 77
    assert batch["reward"][0, 0] == 77
    assert tensors["observation"]["count"].shape == (1, 4, 2)


def test_set_seed_starts_anew(take):
    # CS1, CS2: copy k gets seed + k; all copies are reset, ids are new, later resets pass no seed.
    with hr.Collector(lambda: CounterEnv(3), frames_per_batch=8, num_envs=2, seed=5) as collector:
        (first,) = take(collector, 1)
        envs = collector._loop.stepper.environments
        assert [env.seeds[0] for env in envs] == [5, 6]
        assert collector.set_seed(1) == 2
        (second,) = take(collector, 1)
        assert [env.seeds.count(1 + i) for i, env in enumerate(envs)] == [1, 1]
        assert all(seed is None for env in envs for seed in env.seeds[-1:])
        assert second["t"][:, 0].tolist() == [0, 0]
        assert second["episode_id"].min() > first["episode_id"].max()
        assert not first["terminated"][:, -1].any()  # Cut rows carry no flag.
        np.testing.assert_array_equal(first["next_observation"][:, -1, 2], [1, 1])
        assert collector.set_seed(9, static_seed=True) == 9
        take(collector, 1)
        assert [env.seeds.count(9) for env in envs] == [1, 1]


def test_same_seed_same_batches(take):
    # CS5.
    def collect():
        with hr.Collector("CartPole-v1", frames_per_batch=60, num_envs=3, seed=11) as collector:
            return take(collector, 3)

    for one, other in zip(collect(), collect(), strict=True):
        same(one, other)


@pytest.mark.parametrize(
    ("make", "options"),
    [
        pytest.param(lambda: None, {"num_envs": 3, "max_frames_per_traj": 6}, id="single"),
        pytest.param(lambda: counter_vector_env([3, 5, 4], "same_step"), {}, id="same_step"),
        pytest.param(lambda: counter_vector_env([3, 5, 4], "next_step"), {}, id="next_step"),
        pytest.param(
            lambda: counter_vector_env([3, 5, 4], "disabled", layout="dict"), {}, id="disabled dict"
        ),
    ],
)
def test_a_worker_collects_the_same(policy, take, make, options):
    # CS5: byte for byte, extras included, after a random beginning.
    if "num_envs" in options:
        make = "CartPole-v1"

        def acts(observation):
            return (observation[:, 2] > 0).astype(int), {"angle": observation[:, 2]}
    else:

        def acts(observation):
            return policy(observation), {"doubled": 2.0 * policy(observation)}

    common = dict(frames_per_batch=21, seed=4, init_random_frames=40, **options)
    with hr.Collector(make, acts, **common) as inline, hr.AsyncCollector(make, acts, **common) as worker:
        ours, theirs = take(inline, 6), take(worker, 6)
    for one, other in zip(ours, theirs, strict=True):
        same(one, other)
    assert theirs[0].worker_idx == 0


def test_large_batches_use_the_memory_of_those_that_are_garbage():
    # CB8, performance P8: a batch that is held never changes.
    def places(batch):
        return {batch[name].ctypes.data for name in ("observation", "next_observation")}

    with hr.Collector(lambda: CounterEnv(50), frames_per_batch=1 << 13) as collector:
        held = collector.next()
        before = held["observation"].copy()
        dropped = places(collector.next())
        later = places(collector.next())
        assert not later & places(held)
        assert later == dropped
        np.testing.assert_array_equal(held["observation"], before)
