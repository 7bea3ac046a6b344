"""Devices of batches, environments and policies (collectors CD1 to CD3, CP5)."""

import subprocess
import sys

import cloudpickle
import numpy as np
import pytest

import headrace as hr
from headrace.collectors.devices import Devices, worker_devices
from headrace.testing import CounterEnv

torch = pytest.importorskip("torch")
cloudpickle.register_pickle_by_value(sys.modules[__name__])

COLLECTORS = [hr.Collector, hr.AsyncCollector]
NAMES = ("device", "storing_device", "env_device", "policy_device")
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def devices(workers=1, **given):
    return worker_devices(workers, **{name: given.get(name) for name in NAMES})


# ---- arguments -----------------------------------------------------------------------------------------------------


def test_device_stands_for_those_not_given():
    # CD1.
    assert devices() == [Devices(None, None, None)]
    assert devices(device="cpu") == [Devices("cpu", "cpu", "cpu")]
    assert devices(device="cuda:1", env_device="cpu") == [Devices("cuda:1", "cpu", "cuda:1")]


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("cpu", "cpu"),
        ("cpu:0", "cpu"),
        (torch.device("cpu"), "cpu"),
        ("cuda", "cuda"),
        (1, "cuda:1"),
        (np.int64(0), "cuda:0"),
        (torch.device("cuda", 2), "cuda:2"),
        ("meta", "meta"),
    ],
)
def test_forms_of_a_device(given, name):
    assert devices(policy_device=given) == [Devices(None, None, name)]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("given", ["gpu", -1, True, 1.5, {}, "cuda:x"])
def test_values_that_are_no_devices(name, given):
    with pytest.raises(ValueError, match=f"^{name}: expected a torch device such as 'cpu' or 'cuda:0', got"):
        devices(**{name: given})


def test_a_list_has_one_for_each_worker():
    # CD3.
    assert devices(2, policy_device=["cuda:0", "cuda:1"], device="cpu") == [
        Devices("cpu", "cpu", "cuda:0"),
        Devices("cpu", "cpu", "cuda:1"),
    ]
    assert devices(2, device=[None, 0]) == [Devices(None, None, None), Devices(*["cuda:0"] * 3)]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", COLLECTORS)
def test_errors_come_before_anything_is_built(kind, name, monkeypatch):
    def never(*_):
        raise AssertionError("was built before the arguments were checked")

    monkeypatch.setattr("headrace.collectors.multi.starting.WorkerProcess", never)
    with pytest.raises(ValueError, match=f"{name}: expected one device, or a list of 1, .* got 2"):
        kind(never, frames_per_batch=3, **{name: ["cpu", "cpu"]})
    with pytest.raises(ValueError, match=f"{name}: expected a torch device"):
        kind(never, frames_per_batch=3, **{name: "gpu"})


@pytest.mark.skipif(torch.cuda.device_count() > 90, reason="needs a CUDA device that is not there")
def test_a_cuda_device_that_is_not_there():
    for name in ("storing_device", "policy_device"):
        with pytest.raises(ValueError, match=f"{name}: cuda:91 is not on this machine"):
            hr.Collector(
                lambda: CounterEnv(5), torch.nn.Linear(3, 1), frames_per_batch=3, **{name: 91}
            ).shutdown()


def test_without_torch_only_the_cpu_exists():
    # CD1: the error names the extra.
    code = """
import sys
sys.modules["torch"] = None
import headrace as hr
for given in (None, "cpu"):
    with hr.Collector("CartPole-v1", frames_per_batch=3, device=given) as collector:
        collector.next()
for given in ("cuda", 0, "cpu:0"):
    try:
        hr.Collector("CartPole-v1", frames_per_batch=3, storing_device=given)
    except ImportError as error:
        assert str(error) == f'storing_device: {given!r} needs torch: pip install "headrace[torch]"', error
    else:
        raise AssertionError(given)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# ---- batches -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", COLLECTORS)
@pytest.mark.parametrize("given", [None, "cpu", torch.device("cpu")])
def test_batches_on_the_cpu_are_arrays(kind, given):
    # CD2.
    with kind(lambda: CounterEnv(5), frames_per_batch=4, storing_device=given) as collector:
        batch = collector.next(timeout=40)
    assert {type(column) for column in batch.values()} == {np.ndarray}


@pytest.mark.parametrize("kind", COLLECTORS)
def test_batches_elsewhere_are_tensors(kind):
    with kind(
        lambda: CounterEnv(5, layout="dict"), frames_per_batch=4, num_envs=2, storing_device="meta"
    ) as collector:
        batch = collector.next(timeout=40)
    leaves = [batch["reward"], batch["mask"], batch["observation"]["count"], batch["next_observation/copy"]]
    assert {leaf.device.type for leaf in leaves} == {"meta"}
    assert batch["observation/count"].shape == (2, 2, 2)
    assert batch.shape == (2, 2)
    assert batch["reward"].dtype == torch.float32
    assert batch.worker_idx == (None if kind is hr.Collector else 0)


def tensor_batch():
    """A batch of tensors, some of its rows masked."""
    numbers = np.arange(6).reshape(2, 3)
    trees = {"t": numbers, "episode_id": numbers // 3, "policy_version": numbers, "mask": numbers != 4}
    return hr.Batch({name: torch.from_numpy(array) for name, array in trees.items()}), hr.Batch(trees)


def test_a_batch_of_tensors_can_all_that_one_of_arrays_can():
    # CB2.
    batch, arrays = tensor_batch()
    assert batch.frames == 5
    assert batch.shape == (2, 3)
    assert batch.flatten()["t"].tolist() == [0, 1, 2, 3, 5]
    assert type(batch.flatten()["t"]) is torch.Tensor
    np.testing.assert_array_equal(batch.numpy()["t"], arrays["t"])
    assert batch.torch()["t"] is batch["t"]
    assert repr(batch) == repr(arrays)
    assert str(batch.explain((1, 0))) == str(arrays.explain((1, 0)))
    parts = list(batch.minibatches(2, seed=3))
    assert type(parts[0]["t"]) is torch.Tensor
    for part, known in zip(parts, arrays.minibatches(2, seed=3), strict=True):
        np.testing.assert_array_equal(part["t"].numpy(), known["t"])


# ---- policies ------------------------------------------------------------------------------------------------------


class Elsewhere(torch.nn.Module):
    """A module on a device without memory until it is moved; it records the devices of what it is given."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(2, device="meta"))
        self.seen = []

    def to(self, device):
        self.weight = torch.nn.Parameter(torch.ones(2, device=device))
        return self

    def forward(self, observation):
        self.seen.append(observation.device.type)
        return torch.zeros(len(observation), dtype=torch.int64), {
            "weight": self.weight[:1].expand(len(observation))
        }


def test_a_module_elsewhere_is_copied():
    # CP5: and an update without arguments mirrors the learner's own.
    policy = Elsewhere()
    with hr.Collector(lambda: CounterEnv(5), policy, frames_per_batch=3, policy_device="cpu") as collector:
        batch = collector.next()
        assert collector.policy is not policy
        assert (policy.weight.device.type, collector.policy.weight.device.type) == ("meta", "cpu")
        assert set(collector.policy.seen) == {"cpu"}
        policy.to("cpu").weight.data[:] = 7
        collector.update_policy_weights_()
        after = collector.next()
    assert policy.seen == []
    assert (batch["weight"] == 1).all()
    assert (after["weight"] == 7).all()


@pytest.mark.parametrize("given", [None, "cpu"])
def test_a_module_that_is_there_is_used_itself(given):
    # CP5: edits in place act from the next step.
    policy = Elsewhere().to("cpu")
    with hr.Collector(lambda: CounterEnv(5), policy, frames_per_batch=3, policy_device=given) as collector:
        assert collector.policy is policy
        collector.next()
        policy.weight.data[:] = 5
        assert (collector.next()["weight"] == 5).all()


def test_a_factorys_module_is_moved():
    with hr.Collector(
        lambda: CounterEnv(5), policy_factory=Elsewhere, frames_per_batch=3, policy_device="cpu"
    ) as collector:
        assert (collector.next()["weight"] == 1).all()


def test_a_worker_moves_its_copy():
    policy = Elsewhere()
    with hr.AsyncCollector(
        lambda: CounterEnv(5), policy, frames_per_batch=3, policy_device="cpu"
    ) as collector:
        assert (collector.next(timeout=40)["weight"] == 1).all()
    assert policy.weight.device.type == "meta"


class OnMeta:
    """Sees where its inputs are; answers on the CPU."""

    def __init__(self):
        self.seen = []

    def act(self, observation):
        self.seen.append((type(observation), observation.device.type))
        return np.zeros(len(observation), int)

    def __call__(self, observation):
        return self.act(observation)


class Computes(OnMeta):
    __call__ = None
    initial_state = (np.zeros(2, np.float32),)

    def compute_actions(self, input_dict):
        assert input_dict["state_in_0"].device.type == "meta"
        return self.act(input_dict["observation"]), [torch.ones(2, 2)], {}


@pytest.mark.parametrize("kind", [OnMeta, Computes])
def test_other_policies_are_given_tensors_on_another_device(kind):
    # CD2.
    policy = kind()
    with hr.Collector(
        lambda: CounterEnv(5), policy, frames_per_batch=4, num_envs=2, policy_device="meta"
    ) as collector:
        collector.next()
    assert set(policy.seen) == {(torch.Tensor, "meta")}


def test_other_policies_are_given_arrays_on_the_cpu():
    class Seeing(OnMeta):
        def act(self, observation):
            self.seen.append(type(observation))
            return torch.zeros(len(observation), dtype=torch.int64)

    policy = Seeing()
    with hr.Collector(lambda: CounterEnv(5), policy, frames_per_batch=4, policy_device="cpu") as collector:
        collector.next()
    assert set(policy.seen) == {np.ndarray}


# ---- environments --------------------------------------------------------------------------------------------------


def make_env(length=5, device="own"):
    env = CounterEnv(length)
    env.made_on = device
    return env


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "own"),
        ({"env_device": "cpu"}, "cpu"),
        ({"device": "meta", "policy_device": "cpu", "storing_device": "cpu"}, "meta"),
        ({"env_device": "cpu", "create_env_kwargs": {"device": "theirs"}}, "theirs"),
    ],
)
def test_an_environment_that_can_use_a_device_is_given_it(options, expected):
    # CD2.
    with hr.Collector(make_env, frames_per_batch=4, num_envs=2, **options) as collector:
        assert collector.env.made_on == expected


def test_environments_without_a_device_are_left_alone():
    for create in ("CartPole-v1", lambda: CounterEnv(5), CounterEnv(5)):
        with hr.Collector(create, frames_per_batch=4, env_device="meta") as collector:
            assert collector.next().frames == 4


def test_a_worker_gives_the_device():
    def make(device=None):
        assert device == "cpu"
        return CounterEnv(5)

    with hr.AsyncCollector(make, frames_per_batch=4, device="cpu") as collector:
        assert collector.next(timeout=40).frames == 4


# ---- CUDA ----------------------------------------------------------------------------------------------------------


@needs_cuda
@pytest.mark.parametrize("kind", COLLECTORS)
def test_batches_on_cuda(kind):
    options = {"frames_per_batch": 64, "num_envs": 4, "seed": 3}
    with kind(lambda: CounterEnv(7), lambda seen: seen[:, 2] % 4, **options) as collector:
        expected = [collector.next(timeout=60) for _ in range(4)]
    with kind(lambda: CounterEnv(7), lambda seen: seen[:, 2] % 4, **options, storing_device=0) as collector:
        batches = [collector.next(timeout=60) for _ in range(4)]
    for batch, known in zip(batches, expected, strict=True):
        assert batch["observation"].device == torch.device("cuda:0")
        for name, column in batch.numpy().items():
            np.testing.assert_array_equal(column, known[name])


@needs_cuda
@pytest.mark.parametrize("kind", COLLECTORS)
def test_a_policy_on_cuda(kind):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(1))

        def forward(self, seen):
            assert seen.device.type == "cuda"
            return seen[:, 2] % 4, {"value": seen[:, 1] * self.scale}

    policy = Net()
    with kind(
        lambda: CounterEnv(7), policy, frames_per_batch=64, num_envs=4, policy_device="cuda"
    ) as collector:
        batch = collector.next(timeout=60)
        np.testing.assert_array_equal(batch["value"], batch["observation"][..., 1])
        collector.update_policy_weights_(weights={"scale": np.full(1, 3, np.float32)})
        batches = [collector.next(timeout=60) for _ in range(4)]
    assert policy.scale.device.type == "cpu"
    for batch in batches:
        scale = np.where(batch["policy_version"] == 1, 3, 1)
        np.testing.assert_array_equal(batch["value"], batch["observation"][..., 1] * scale)
    assert (batches[-1]["policy_version"] == 1).all()
