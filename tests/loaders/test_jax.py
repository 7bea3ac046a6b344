"""Batches of JAX arrays (loaders LD5)."""

import numpy as np
import pytest

from headrace.loaders import Loader
from headrace.replay import ReplaySample
from headrace.replay.conversion.frameworks import conversion_to, converter_to

jax = pytest.importorskip("jax")

from headrace.replay.conversion.jax_batch import JaxBatch  # noqa: E402


def to_jax(data, mask=None, device=None):
    conversion = conversion_to("jax", device)
    return conversion.deliver(conversion.convert(ReplaySample(data, None, mask)))


@pytest.mark.parametrize("device", [None, "cpu", "a device"])
def test_on_a_device(device):
    """LD5: a device, or the name of its platform."""
    device = jax.devices("cpu")[0] if device == "a device" else device
    batch = to_jax(
        {"a": np.arange(6, dtype=np.int32).reshape(2, 3), "b": (np.ones(2, np.uint8),)}, device=device
    )
    assert isinstance(batch.data["a"], jax.Array)
    assert batch.data["a"].devices() == {jax.devices("cpu")[0]}
    assert batch.data["a"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert batch.data["b"][0].dtype == np.uint8
    assert batch.mask is None


@pytest.mark.parametrize("device", ["nonsense", 7])
def test_wrong_devices(device):
    """LD9."""
    with pytest.raises(ValueError, match="^device: "):
        conversion_to("jax", device)


@pytest.mark.parametrize(
    ("dtype", "narrow"),
    [("int64", "int32"), ("uint64", "uint32"), ("float64", "float32"), ("complex128", "complex64")],
)
def test_64_bits_follow_the_setting(dtype, narrow):
    """LD5."""
    array = np.array([0, 1, 7], dtype)
    assert to_jax({"a": array}).data["a"].dtype == narrow
    with jax.enable_x64(True):
        assert to_jax({"a": array}).data["a"].dtype == dtype


@pytest.mark.parametrize(("value", "dtype"), [(2**31, "int64"), (-(2**31) - 1, "int64"), (2**32, "uint64")])
def test_integers_are_never_wrapped(value, dtype):
    """LD5: in data, deep down, too."""
    array = np.array([0, value], dtype)
    with pytest.raises(OverflowError, match=f"dtype {dtype} do not fit"):
        to_jax({"a": {"b": array}})
    with jax.enable_x64(True):
        assert int(to_jax({"a": array}).data["a"][1]) == value
    largest = np.array([np.iinfo(np.int32).min, np.iinfo(np.int32).max])
    assert to_jax({"a": largest}).data["a"].tolist() == largest.tolist()
    assert to_jax({"a": np.zeros((0, 2), dtype)}).data["a"].shape == (0, 2)


def test_to_another_device():
    """LD7."""
    batch = to_jax({"a": np.ones(3, np.float32)}, np.ones((3, 2), np.bool_)).to("cpu")
    assert type(batch) is JaxBatch
    assert batch.mask.shape == (3, 2)
    assert batch.to(jax.devices()[0]).data["a"].tolist() == [1.0] * 3
    with pytest.raises(ValueError, match="^device: "):
        batch.to("nonsense")


def test_a_batch_never_changes(make_replay):
    """LD6: JAX may read the replay's buffers in place; they are not used again while it does."""
    with Loader(make_replay("uniform"), "t", 500, to="jax", prefetch=2) as loader:
        kept = [next(loader) for _ in range(4)]
        copies = [np.array(batch.data["image"]) for batch in kept]
        for _ in range(20):
            next(loader)
    for batch, copy in zip(kept, copies, strict=True):
        np.testing.assert_array_equal(batch.data["image"], copy)


def test_overflow_comes_in_its_turn(scripted, numbers):
    """LD5, LW3: the batches before it are delivered, the stream goes on after it."""
    replay = scripted()
    sample = replay.sample

    def sample_large(*args, **kwargs):
        batch = sample(*args, **kwargs)
        if batch.data["n"][0] == 2:
            batch.data["n"][:] = 2**40
        return batch

    replay.sample = sample_large
    with Loader(replay, "t", 1, to="jax", prefetch=2) as loader:
        assert numbers(loader, 1) == [1]
        with pytest.raises(OverflowError):
            next(loader)
        assert numbers(loader, 1) == [3]


def test_one_sample():
    batch = converter_to("jax", "cpu")(ReplaySample({"a": np.arange(3, dtype=np.int32)}, None))
    assert (type(batch), batch["a"].tolist()) == (JaxBatch, [0, 1, 2])
