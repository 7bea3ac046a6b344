"""Columns as torch tensors and JAX arrays."""

import numpy as np
import pytest

import headrace as hr

COLUMNS = {"observation": {"a": np.arange(3.0), "b": (np.ones((3, 2), np.uint8),)}, "done": np.zeros(3, bool)}


def test_numpy_is_plain_dicts_without_a_copy():
    batch = hr.SampleBatch(COLUMNS, seq_lens=[1, 2])
    plain = batch.numpy()
    assert type(plain) is dict
    assert plain["observation"]["a"] is batch["observation/a"]
    assert plain["seq_lens"].tolist() == [1, 2]


def test_torch_shares_memory():
    torch = pytest.importorskip("torch")
    batch = hr.SampleBatch(COLUMNS).copy()
    tensors = batch.torch()
    tensors["observation"]["b"][0][1, 1] = 77
    assert batch["observation/b/0"][1].tolist() == [1, 77]
    assert tensors["done"].dtype == torch.bool


def test_torch_copies_memory_that_it_cannot_use():
    torch = pytest.importorskip("torch")
    fixed = np.arange(3.0)
    fixed.flags.writeable = False
    tensors = hr.SampleBatch({"fixed": fixed, "back": np.arange(3.0)[::-1]}).torch()
    assert {name: tensor.tolist() for name, tensor in tensors.items()} == {
        "fixed": [0, 1, 2],
        "back": [2, 1, 0],
    }
    tensor = torch.ones(3, requires_grad=True)
    assert hr.SampleBatch({"x": tensor}).torch()["x"] is tensor


SWAPPED = {
    "x": np.arange(3, dtype=np.dtype(np.float32).newbyteorder()),
    "t": {"c": np.arange(3).astype(">i2")},
}


def test_torch_copies_columns_of_another_byte_order():
    torch = pytest.importorskip("torch")
    tensors = hr.SampleBatch(SWAPPED).torch()
    assert tensors["x"].tolist() == tensors["t"]["c"].tolist() == [0, 1, 2]
    assert (tensors["x"].dtype, tensors["t"]["c"].dtype) == (torch.float32, torch.int16)


def test_jax_copies_columns_of_another_byte_order():
    pytest.importorskip("jax")
    arrays = hr.SampleBatch(SWAPPED).jax()
    assert arrays["x"].tolist() == arrays["t"]["c"].tolist() == [0, 1, 2]


def test_a_batch_of_policies_is_dicts_by_policy():
    torch = pytest.importorskip("torch")
    batch = hr.MultiAgentBatch({"one": hr.SampleBatch({"t": [0, 1]})}, 2)
    assert batch.numpy() == {"one": {"t": batch["one"]["t"]}}
    assert isinstance(batch.torch()["one"]["t"], torch.Tensor)


def test_jax():
    jax = pytest.importorskip("jax")
    found = hr.SampleBatch(COLUMNS).jax()
    assert isinstance(found["observation"]["b"][0], jax.Array)
    assert hr.SampleBatch(found).jax()["done"] is found["done"]
    with pytest.raises(OverflowError, match="do not fit int32"):
        hr.SampleBatch({"x": np.array([2**40])}).jax()


def test_columns_of_tensors_stay_tensors():
    """B5, B6: also with a gradient, which NumPy refuses."""
    torch = pytest.importorskip("torch")
    value = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    batch = hr.SampleBatch({"tree": {"value": value * 2}, "x": [1, 2, 3]}, seq_lens=[1, 2])
    joined = hr.SampleBatch.concat([batch[:1], batch[1:]])
    padded = joined.right_zero_pad(2)
    assert padded["x"].tolist() == [1, 0, 2, 3]
    assert padded["tree/value"].tolist() == [2.0, 0.0, 4.0, 6.0]
    assert padded[1:]["tree/value"].tolist() == [4.0, 6.0]
    padded["tree/value"].sum().backward()
    assert value.grad.tolist() == [2.0, 2.0, 2.0]
