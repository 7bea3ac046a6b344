"""What may be given as create_env_fn (collectors CE1, CE2, CR13)."""

import subprocess
import sys
from functools import partial

import gymnasium
import pytest
from gymnasium import spaces

from headrace.envs import (
    VectorStepper,
    adapt,
    environment_factory,
    environment_seeds,
    is_environment,
    make_stepper,
    worker_factories,
)
from headrace.errors import SpecError
from headrace.testing.envs import CounterEnv, counter_vector_env


@pytest.mark.parametrize("num_envs", [1, 3])
def test_a_callable_is_called_once_a_copy(num_envs):
    """CE1, CE2: n copies by n calls; nothing is built merely to look at it."""
    built = []

    def create(length):
        built.append(CounterEnv(length))
        return built[-1]

    stepper = make_stepper(create, create_env_kwargs={"length": 3}, num_envs=num_envs)
    assert isinstance(stepper, VectorStepper)
    assert list(stepper.environments) == built
    assert stepper.num_envs == num_envs
    stepper.close()


def test_a_vector_environment_is_built_once():
    """CE1, CE2: one call; num_envs left alone or equal its own."""
    built = []

    def create():
        built.append(counter_vector_env([1, 2, 3], "disabled"))
        return built[-1]

    for num_envs in (1, 3):
        stepper = make_stepper(create, num_envs=num_envs)
        assert stepper.num_envs == 3
        stepper.close()
    assert len(built) == 2


def test_num_envs_of_a_vector_environment():
    """CE2: another num_envs is a ValueError, and what was built is closed."""
    built = []

    def create():
        built.append(counter_vector_env([1, 2, 3], "disabled"))
        return built[-1]

    with pytest.raises(ValueError, match="num_envs: expected 3.*got 2"):
        make_stepper(create, num_envs=2)
    assert [env.closed for env in built[0].envs] == [1, 1, 1]
    with pytest.raises(ValueError, match="num_envs: expected 3.*got 2"):
        make_stepper(counter_vector_env([1, 2, 3], "disabled"), num_envs=2)


def test_a_registered_id():
    """CE1: a registered Gymnasium id as a string."""
    stepper = make_stepper("CartPole-v1", create_env_kwargs={"max_episode_steps": 7}, num_envs=2)
    assert [env.spec.max_episode_steps for env in stepper.environments] == [7, 7]
    stepper.close()


def test_an_atari_id():
    """CE1: gymnasium has to be told of these games, in the learner's process and in the worker's."""
    pytest.importorskip("ale_py")
    script = """
import headrace as hr
print(hr.collectors.signature("ALE/Pong-v5").columns["observation"])
with hr.AsyncCollector("ALE/Pong-v5", frames_per_batch=2) as collector:
    print(collector.next(timeout=60).shape)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True, timeout=100
    )
    assert done.stdout.splitlines()[-2:] == ["uint8[210, 160, 3]", "(1, 2)"], done.stderr


def test_an_atari_id_without_its_library(monkeypatch):
    """CE1: the extra is named."""
    for name in [name for name in gymnasium.registry if name.startswith("ALE/")]:
        monkeypatch.delitem(gymnasium.registry, name)
    monkeypatch.setitem(sys.modules, "ale_py", None)
    with pytest.raises(ImportError, match=r'ALE/Pong-v5 needs ale-py: pip install "headrace\[atari\]"'):
        make_stepper("ALE/Pong-v5")


def test_an_id_that_is_not_registered():
    """CE1: gymnasium's own error."""
    with pytest.raises(gymnasium.error.NameNotFound):
        make_stepper("NoSuchEnvironment-v0")


@pytest.mark.parametrize("wrap", [lambda env: env, adapt])
def test_a_ready_environment(wrap):
    """CE1: single-process; create_env_kwargs with it is a ValueError; it cannot be copied."""
    env = CounterEnv(3)
    assert make_stepper(wrap(env)).environments == (env,)
    with pytest.raises(
        ValueError, match="create_env_kwargs: expected none with a ready environment, got length"
    ):
        make_stepper(wrap(env), create_env_kwargs={"length": 3})
    with pytest.raises(ValueError, match="num_envs: expected 1 with one ready environment, got 2"):
        make_stepper(wrap(env), num_envs=2)
    with pytest.raises(TypeError, match="ready"):
        environment_factory(wrap(env))


def test_adapted_environments_from_a_callable():
    """CE4: adapt may be used inside the callable too."""
    stepper = make_stepper(lambda: adapt(CounterEnv(3)), num_envs=2)
    assert all(isinstance(env, CounterEnv) for env in stepper.environments)
    vector = make_stepper(lambda: adapt(counter_vector_env([1, 2], "same_step"), autoreset="same_step"))
    assert vector.num_envs == 2
    vector.close()


@pytest.mark.parametrize("num_envs", [0, -1, 1.5, True, None, "2"])
def test_num_envs_must_be_positive(num_envs):
    """CR13: argument errors come before anything is built."""

    def create():
        raise AssertionError("nothing is to be built")

    with pytest.raises(ValueError, match="num_envs: expected a positive int"):
        make_stepper(create, num_envs=num_envs)


@pytest.mark.parametrize("value", [None, 3, [], {"env": 1}])
def test_something_else(value):
    """CE1: TypeError that says what is expected."""
    with pytest.raises(TypeError, match="create_env_fn: expected a callable"):
        make_stepper(value)


def test_a_callable_that_gives_no_environment():
    """CE1: the usual slip is named."""
    with pytest.raises(TypeError, match="got NoneType; is a `return` missing"):
        make_stepper(lambda: None)
    with pytest.raises(TypeError, match="got int"):
        make_stepper(lambda: 3)


def test_a_callable_that_gives_one_environment_twice():
    """CE1: each copy is an environment of its own."""
    env = CounterEnv(3)
    with pytest.raises(ValueError, match="same one twice"):
        make_stepper(lambda: env, num_envs=2)
    assert env.closed == 1


def test_copies_with_other_spaces():
    """CE5: SpecError with the environment's index; what was built is closed."""

    class Other(CounterEnv):
        def __init__(self):
            super().__init__(3)
            self.action_space = spaces.Discrete(9)

    envs = [CounterEnv(3), Other()]
    fns = list(envs)
    with pytest.raises(SpecError, match="environment 1: action_space: expected Discrete.4"):
        make_stepper(lambda: fns.pop(0), num_envs=2)
    assert [env.closed for env in envs] == [1, 1]


def test_a_copy_that_cannot_be_built():
    """CX4: its own error; those built before it are closed."""
    built = []

    def create():
        if len(built) == 2:
            raise OSError("no display")
        built.append(CounterEnv(1))
        return built[-1]

    with pytest.raises(OSError, match="no display"):
        make_stepper(create, num_envs=3)
    assert [env.closed for env in built] == [1, 1]


def test_closing_goes_on_after_an_error():
    """CQ7: all environments are closed; the first error is raised with the copy's index."""

    class Stuck(CounterEnv):
        def close(self):
            super().close()
            raise OSError("stuck")

    envs = [Stuck(1), CounterEnv(1), Stuck(1)]
    fns = list(envs)
    stepper = make_stepper(lambda: fns.pop(0), num_envs=3)
    with pytest.raises(OSError, match="stuck") as caught:
        stepper.close()
    assert caught.value.__notes__ == ["raised by close of environment 0"]
    assert [env.closed for env in envs] == [1, 1, 1]


def test_factories_of_workers():
    """CE1: a list, one a worker, or one callable with num_workers (1 when not given)."""
    create = partial(CounterEnv, 3)
    assert len(worker_factories(create)) == 1
    assert len(worker_factories(create, num_workers=4)) == 4
    assert len(worker_factories([create, "CartPole-v1"])) == 2
    assert isinstance(worker_factories([create], create_env_kwargs={"copy": 2})[0](), CounterEnv)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            {"create_env_fn": [CounterEnv], "num_workers": 2},
            ValueError,
            "list of 2, one for each worker, got 1",
        ),
        ({"create_env_fn": []}, ValueError, "empty list"),
        ({"create_env_fn": CounterEnv, "num_workers": 0}, ValueError, "num_workers: expected a positive int"),
        ({"create_env_fn": CounterEnv(1), "num_workers": 2}, TypeError, "got a ready CounterEnv"),
        ({"create_env_fn": [CounterEnv, CounterEnv(1)]}, TypeError, "got a ready CounterEnv"),
        ({"create_env_fn": 3}, TypeError, "expected a callable"),
    ],
)
def test_factories_that_cannot_be(arguments, error, message):
    """CE1: a list of another length is a ValueError, a ready environment a TypeError."""
    with pytest.raises(error, match=message):
        worker_factories(**arguments)


def test_what_an_environment_is():
    """CE1: an environment's class is a callable that gives one."""
    assert not is_environment(CounterEnv)
    assert is_environment(CounterEnv(1))
    assert not is_environment(3)


def test_seeds_of_environments():
    """CS1: environment k (over all workers) gets seed + k; with static_seed all get seed."""
    workers = [environment_seeds(1, 3, first=first) for first in (0, 3)]
    assert workers == [[1, 2, 3], [4, 5, 6]]
    assert environment_seeds(1, 3, first=3, static_seed=True) == [1, 1, 1]
    with pytest.raises(ValueError, match="seed: expected"):
        environment_seeds(-1, 2)
    assert environment_seeds(2**63 - 1, 1) == [2**63 - 1]
    with pytest.raises(ValueError, match="below"):
        environment_seeds(2**63 - 1, 1, first=1)
    assert environment_seeds(2**63 - 1, 2, first=1, static_seed=True) == [2**63 - 1] * 2
    with pytest.raises(ValueError, match="below"):
        environment_seeds(2**63, 1, static_seed=True)
    with pytest.raises(TypeError):
        environment_seeds(1.5, 2)


def test_importing_loads_no_gymnasium():
    """Design section 8: importing the package loads none of the optional or heavy libraries."""
    code = "import sys, headrace.envs; assert not {'gymnasium', 'torch', 'jax'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


class OnDevice(CounterEnv):
    def __init__(self, device="own"):
        super().__init__(3)
        self.device = device


@pytest.mark.parametrize("given", [True, False])
def test_a_registered_environment_is_given_the_device(given):
    # CD2: unless the registration or the user gives one.
    gymnasium.register("OnDevice-v0", OnDevice, kwargs={} if given else {"device": "registered"})
    try:
        stepper = make_stepper("OnDevice-v0", device="cpu")
        assert stepper.environments[0].unwrapped.device == ("cpu" if given else "registered")
        stepper.close()
        stepper = make_stepper("OnDevice-v0", create_env_kwargs={"device": "mine"}, device="cpu")
        assert stepper.environments[0].unwrapped.device == "mine"
        stepper.close()
        stepper = make_stepper("CartPole-v1", device="cpu")  # It has no such parameter.
        stepper.close()
    finally:
        del gymnasium.registry["OnDevice-v0"]
