"""Weights of policies (collectors CP4)."""

import subprocess
import sys

import numpy as np
import pytest

from headrace.errors import SpecError
from headrace.weights import (
    FunctionalPolicy,
    SharedMemory,
    apply_weights,
    has_weights,
    is_torch_module,
    read_weights,
)


class Linear:
    """Any class may have weights."""

    def __init__(self):
        self.w = np.zeros(2)

    def state_dict(self):
        return {"w": self.w}

    def load_state_dict(self, weights):
        self.w = weights["w"]


def test_any_class_with_the_two_methods():
    """CP4: state_dict() gives a pytree of arrays, load_state_dict() takes it."""
    policy = Linear()
    assert has_weights(policy)
    apply_weights(policy, {"w": np.ones(2)})
    assert read_weights(policy)["w"].tolist() == [1, 1]


def test_a_policy_without_weights():
    """CP4: TypeError that says what to add."""
    policy = lambda observation: observation  # noqa: E731
    assert not has_weights(policy)
    for attempt in (lambda: read_weights(policy), lambda: apply_weights(policy, {})):
        with pytest.raises(TypeError, match="add state_dict.*hr.FunctionalPolicy"):
            attempt()


def test_functional_policy():
    """CP4: apply(params, observation); replacing checks names, shapes and dtypes first."""
    policy = FunctionalPolicy(lambda p, x: x @ p["w"] + p["b"], {"w": np.eye(2), "b": np.zeros(2)})
    observation = np.array([[1.0, 2.0]])
    assert policy(observation).tolist() == [[1, 2]]
    new = {"w": 2 * np.eye(2), "b": np.ones(2)}
    policy.load_state_dict(new)
    new["w"][...] = 0
    assert policy(observation).tolist() == [[3, 5]]
    assert read_weights(policy) is policy.params
    with pytest.raises(SpecError, match=r"w: expected float64\[2, 2\]"):
        policy.load_state_dict({"w": np.zeros((3, 2)), "b": np.zeros(2)})
    assert policy(observation).tolist() == [[3, 5]]


def test_functional_policy_of_something_else():
    """CP4: errors of its arguments."""
    with pytest.raises(TypeError, match="apply: expected a function"):
        FunctionalPolicy(3, {})
    with pytest.raises(SpecError, match="w: expected an array"):
        FunctionalPolicy(lambda p, x: x, {"w": "text"})


def test_nothing_loads_torch_or_jax():
    """Design section 8: torch and JAX are looked for only where they are loaded already."""
    code = (
        "import sys, numpy as np, headrace.weights as w\n"
        "s = w.SharedMemory({'w': np.ones(2)}); s.receiver().read()\n"
        "w.FunctionalPolicy(lambda p, x: x, {'w': np.ones(2)}).load_state_dict({'w': np.ones(2)})\n"
        "assert not w.is_torch_module(3)\n"
        "assert not {'torch', 'jax', 'gymnasium'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


torch = pytest.importorskip("torch")


def module():
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))


def test_torch_modules_through_shared_memory():
    """CP4, CW7: a module's state dict goes in, and into another module on the other side."""
    learner, worker = module(), module()
    assert is_torch_module(learner)
    with SharedMemory(read_weights(learner)) as scheme:
        receiver = scheme.receiver()
        with torch.no_grad():
            learner[0].weight.fill_(0.5)
        learner[1].num_batches_tracked += 7
        scheme.publish(read_weights(learner))
        places = [parameter.data_ptr() for parameter in worker.parameters()]
        apply_weights(worker, receiver.read()[1])
        assert [parameter.data_ptr() for parameter in worker.parameters()] == places
        receiver.close()
    for name, value in learner.state_dict().items():
        assert torch.equal(worker.state_dict()[name], value), name


def test_read_only_arrays_for_a_torch_module():
    """CP4: arrays that may not be written to are copied on the way."""
    policy = torch.nn.Linear(2, 1, bias=False)
    w = np.full((1, 2), 3.0, np.float32)
    w.setflags(write=False)
    apply_weights(policy, {"weight": w})
    assert policy.weight.tolist() == [[3, 3]]


def test_bfloat16_weights():
    """CW7: a dtype that NumPy lacks comes back as torch's own."""
    tensor = torch.tensor([1.5, -2.0, 3e38], dtype=torch.bfloat16)
    with SharedMemory({"w": tensor}) as scheme:
        scheme.publish({"w": 2 * tensor})
        receiver = scheme.receiver()
        got = receiver.read()[1]["w"]
        assert got.dtype == torch.bfloat16
        assert torch.equal(got, 2 * tensor)
        with pytest.raises(SpecError, match=r"w: expected bfloat16\[3\], got int16"):
            scheme.publish({"w": np.zeros(3, np.int16)})
        receiver.close()


def test_functional_policy_of_tensors():
    """CP4: parameters stay what they were: tensors that the caller does not share."""
    policy = FunctionalPolicy(lambda p, x: x * p["w"], {"w": torch.ones(2, requires_grad=True)})
    new = torch.full((2,), 3.0)
    policy.load_state_dict({"w": new})
    new.zero_()
    assert isinstance(policy.params["w"], torch.Tensor)
    assert policy.params["w"].tolist() == [3, 3]
    policy.load_state_dict({"w": np.full(2, 4, np.float32)})
    assert torch.equal(policy(torch.ones(2)), torch.full((2,), 4.0))
