"""EnvPool itself, beyond the contract that counters in its Python layer pass (collectors CE2, CE4, CR5)."""

import subprocess
import sys

import cloudpickle
import envpool
import gymnasium
import numpy as np
import pytest

import headrace as hr
from headrace.envs import Autoreset, is_environment, is_vector_environment, make_stepper
from headrace.envs.adapters.envpool_calls import PoolCalls
from headrace.envs.columns import EnvironmentColumns
from headrace.envs.random_actions import RandomActions
from headrace.spec import ArraySpec

cloudpickle.register_pickle_by_value(sys.modules[__name__])

# EnvPool's own spaces have bounds of float64.
pytestmark = pytest.mark.filterwarnings("ignore:.*precision lowered by casting:UserWarning")


def make(env_id="CartPole-v1", num_envs=4, **options):
    return envpool.make(env_id, env_type="gymnasium", num_envs=num_envs, seed=1, **options)


def check_cart_poles(batch):
    """Every transition against gymnasium's own dynamics, and the alignment of rows."""
    env = gymnasium.make("CartPole-v1").unwrapped
    env.reset()
    rows = batch.flatten().numpy()
    for observation, action, after in zip(
        rows["observation"], rows["action"], rows["next_observation"], strict=True
    ):
        env.reset()
        env.state = observation.astype(np.float64)
        np.testing.assert_allclose(env.step(int(action))[0], after, atol=1e-4)


@pytest.mark.parametrize("kind", [hr.Collector, hr.AsyncCollector])
def test_collectors(kind):
    """CE4, section 15: NEXT_STEP; one masked row after each end, whose next observation is the last of the episode."""
    with kind(make, frames_per_batch=160) as collector:
        batch = collector.next(timeout=30)
    assert batch.shape == (4, 40)
    check_cart_poles(batch)
    ends = batch["terminated"] | batch["truncated"]
    assert ends.any()
    np.testing.assert_array_equal(~batch["mask"][:, 1:], ends[:, :-1])
    after = batch["next_observation"][ends]
    assert ((np.abs(after[:, 0]) > 2.4) | (np.abs(after[:, 2]) > 0.2094)).all()


def test_a_limit_resets_some():
    """CR5: cut copies are reset by EnvPool's partial reset; nothing is masked for them."""
    batch = hr.Collector(make, frames_per_batch=160, max_frames_per_traj=5).next()
    assert batch["truncated"][:, 4::5].all()
    assert batch["mask"].all()
    assert not batch["terminated"].any()
    check_cart_poles(batch)
    np.testing.assert_array_equal(batch["t"], np.tile(np.arange(40) % 5, (4, 1)))


def test_infos():
    """CE5: an entry that EnvPool gives as an array."""
    batch = hr.Collector(
        make, frames_per_batch=80, info_columns={"elapsed_step": ArraySpec((), np.int32)}
    ).next()
    np.testing.assert_array_equal(batch["elapsed_step"][batch["mask"]], batch["t"][batch["mask"]])


def test_what_is_recognised():
    """CE1, CE2: a pool is one vector environment, with its own number and mode."""
    env = make()
    assert is_environment(env)
    assert is_vector_environment(env)
    stepper = make_stepper(env)
    assert (stepper.num_envs, stepper.autoreset) == (4, Autoreset.NEXT_STEP)
    with pytest.raises(ValueError, match="num_envs: expected 4"):
        make_stepper(env, num_envs=3)


@pytest.mark.parametrize(
    ("pool", "message"),
    [
        (lambda: envpool.make("CartPole-v1", env_type="dm", num_envs=2), 'env_type="gymnasium"'),
    ],
)
def test_pools_that_are_refused(pool, message):
    """CE2: ValueError that says how to make it."""
    with pytest.raises(ValueError, match=message):
        make_stepper(pool)


def test_nothing_is_loaded():
    """Design section 8: an optional library is imported only where it is used."""
    code = (
        "import sys, headrace as hr; hr.Collector('CartPole-v1', frames_per_batch=2).next(); "
        "assert not {'envpool', 'dm_env', 'pettingzoo'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "Catch-v0"])
def test_calls_return_what_the_pool_returns(env_id):
    """CE2, CE5: beneath EnvPool's Python layer the same actions give the same results, of the same dtypes."""
    ours, pool = make(env_id), make(env_id)
    calls = PoolCalls(ours, EnvironmentColumns(ours.single_observation_space, ours.single_action_space))
    ours.reset()
    pool.reset()
    actions = RandomActions(pool.action_space, 4, seeds=range(4))
    for _ in range(50):
        action = actions.draw()["action"]
        calls.send({"action": action}, np.arange(4))
        *mine, info = calls.receive()
        *theirs, full_info = pool.step(action)
        for got, expected in zip([*mine, info["env_id"]], [*theirs, full_info["env_id"]], strict=True):
            np.testing.assert_array_equal(got, expected)
            assert got.dtype == expected.dtype


def test_the_python_layer_is_not_called():
    """Section 16: it costs more than the engine."""
    pool = make()
    with hr.Collector(pool, frames_per_batch=16) as collector:
        collector.next()
        pool._to = pool._from = None
        assert collector.next().frames == 16


def test_a_method_that_was_replaced_is_called():
    """CE2: by its owner, who wants it to be called."""
    pool = make()
    recv = pool.recv

    def twice_the_reward(*args, **kwargs):
        observation, *rest = recv(*args, **kwargs)
        return observation, *([2 * rest[0], *rest[1:]] if len(rest) == 4 else rest)

    pool.recv = twice_the_reward
    batch = hr.Collector(pool, frames_per_batch=8).next()
    np.testing.assert_array_equal(batch["reward"], np.full((4, 2), 2))
