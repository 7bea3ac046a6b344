"""What a batch is made of (loaders LD2 to LD8)."""

import builtins
import pickle
import subprocess
import sys
from collections import OrderedDict, namedtuple
from copy import deepcopy
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler

import numpy as np
import pytest

import headrace as hr
from headrace.loaders import Loader
from headrace.replay import ReplaySample
from headrace.replay.conversion.frameworks import conversion_to, converter_to
from headrace.trees import map_leaves

torch = pytest.importorskip("torch")

from headrace.replay.conversion import torch_batch  # noqa: E402
from headrace.replay.conversion.torch_batch import TorchBatch  # noqa: E402

DTYPES = "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 float32 float64 complex64 complex128".split()  # noqa: SIM905

Pair = namedtuple("Pair", "left right")


@dataclass
class Record:
    a: object
    b: object


def sample_of(data, mask=None):
    return ReplaySample(data, None, mask)


def to_torch(data, mask=None, device=None):
    conversion = conversion_to("torch", device)
    return conversion.deliver(conversion.convert(sample_of(data, mask)))


def test_leaves_of_every_container():
    """LD2: the tree is kept."""
    tree = {"b": Pair(1, (2, [3])), "a": OrderedDict(c=4, d=None), "e": Record(5, {"f": 6})}
    mapped = map_leaves(lambda leaf: leaf * 10, tree)
    assert mapped == {"b": Pair(10, (20, [30])), "a": OrderedDict(c=40, d=None), "e": Record(50, {"f": 60})}
    assert list(mapped) == list(tree)
    assert type(mapped["a"]) is OrderedDict


@pytest.fixture
def padded():
    """A replay of trees, with an item of two rows and one of three."""
    table = hr.Table(
        "t", sampler=hr.selectors.Fifo(), remover=hr.selectors.Fifo(), max_size=9, max_times_sampled=1
    )
    step = {"observation": {"camera": np.zeros(2, np.uint8), "speed": np.float32(0)}, "done": False}
    with hr.Replay(hr.Signature.like(step), [table], seed=0) as replay, replay.writer() as writer:
        for count in (2, 3) * 4:
            for t in range(count):
                writer.append({"observation": {"camera": np.full(2, t), "speed": 0.5 * t}, "done": t == 1})
            writer.create_item("t", count)
        yield replay


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("to", ["numpy", "torch", "jax"])
def test_data_info_and_mask(padded, to, prefetch):
    """LD2, LD4, LD5: the tree, the padding, and information that stays NumPy."""
    module = {"numpy": np, "torch": torch}.get(to) or pytest.importorskip("jax.numpy")
    kind = {"numpy": np.ndarray, "torch": torch.Tensor}.get(to) or module.ndarray
    with Loader(padded, "t", 2, to=to, prefetch=prefetch) as loader:
        for _ in range(2):
            batch = next(loader)
            camera, speed = batch.data["observation"]["camera"], batch.data["observation"]["speed"]
            assert isinstance(camera, kind)
            assert isinstance(batch.mask, kind)
            assert (camera.dtype, speed.dtype, batch.mask.dtype) == (
                module.uint8,
                module.float32,
                batch.data["done"].dtype,
            )
            assert camera.shape == (2, 3, 2)
            assert np.asarray(speed).tolist() == [[0.0, 0.5, 0.0], [0.0, 0.5, 1.0]]
            assert np.asarray(batch.mask).tolist() == [[True, True, False], [True, True, True]]
            assert type(batch.info.keys) is np.ndarray
            assert (batch.info.keys.dtype, batch.info.probabilities.dtype) == (np.uint64, np.float64)


@pytest.mark.parametrize("to", ["numpy", "torch", "jax"])
def test_no_mask_stays_none(scripted, to):
    """LD2."""
    pytest.importorskip(to)
    with Loader(scripted(), "t", 2, to=to) as loader:
        assert next(loader).mask is None


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_have_shape_and_dtype(dtype):
    """LD4: without a copy, writable."""
    array = np.arange(6).reshape(3, 2).astype(dtype)
    tensor = to_torch({"a": array}).data["a"]
    assert str(tensor.dtype) == f"torch.{dtype}"
    assert tensor.shape == (3, 2)
    np.testing.assert_array_equal(tensor.numpy(), array)
    assert tensor.data_ptr() == array.ctypes.data
    tensor[0, 0] = 1
    assert array[0, 0] == 1


def test_tensors_are_writable():
    """LD4, LD6: also where a wrapper gives what torch cannot write to, or cannot take."""
    frozen = np.arange(3)
    frozen.flags.writeable = False
    batch = to_torch(
        {"frozen": frozen, "backwards": np.arange(3)[::-1], "same": np.broadcast_to(np.float32(7), 3)}
    )
    for tensor in batch.data.values():
        tensor[:] = 5
    assert frozen.tolist() == [0, 1, 2]


def test_a_torch_batch_never_changes(make_replay):
    """LD6: over the replay's own buffers, which are used again when nobody has them."""
    with Loader(make_replay("uniform"), "t", 500, to="torch", prefetch=2) as loader:
        kept = [next(loader) for _ in range(4)]
        copies = [batch.data["image"].clone() for batch in kept]
        kept[0].data["image"][:] = 99
        places = {next(loader).data["image"].data_ptr() for _ in range(20)}
    assert not places & {batch.data["image"].data_ptr() for batch in kept}
    assert (kept[0].data["image"] == 99).all()
    for batch, copy in zip(kept[1:], copies[1:], strict=True):
        assert torch.equal(batch.data["image"], copy)


def test_to_another_device():
    """LD4, LD7: meta is a device that every machine has."""
    data, mask = {"a": np.ones((2, 3), np.float32)}, np.ones((2, 3), np.bool_)
    batch = to_torch(data, mask, device="meta")
    assert (batch.data["a"].device.type, batch.mask.device.type) == ("meta", "meta")
    assert batch.data["a"].shape == (2, 3)
    moved = to_torch(data, mask).to("meta", non_blocking=True)
    assert (moved.data["a"].device.type, moved.mask.device.type) == ("meta", "meta")
    assert to_torch(data).to("meta").mask is None
    assert to_torch(data, device=torch.device("cpu")).data["a"].data_ptr() == data["a"].ctypes.data


class FakeTensor:
    """Tells what is done to it."""

    def __init__(self, log, name):
        self.log, self.name = log, name

    def pin_memory(self):
        self.log.append(f"pin {self.name}")
        return self

    def to(self, device, non_blocking):
        self.log.append(f"copy {self.name} to {device} on {FakeStream.current}, non_blocking={non_blocking}")
        return self

    def record_stream(self, stream):
        self.log.append(f"{self.name} is used on {stream.name}")


class FakeStream:
    current = "learner"

    def __init__(self, log, name):
        self.log, self.name = log, name

    def record_event(self):
        self.log.append(f"event on {self.name}")
        return "event"

    def wait_event(self, event):
        self.log.append(f"{self.name} waits for {event}")

    def __enter__(self):
        FakeStream.current = self.name

    def __exit__(self, *_):
        FakeStream.current = "learner"


def test_the_order_of_a_copy_to_cuda(monkeypatch):
    """LD4: pinned memory, a side stream, and the learner's stream waits; its memory is not used again too early."""
    log = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: FakeStream(log, "side"))
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: FakeStream(log, "learner"))
    monkeypatch.setattr(torch_batch, "as_tensor", lambda array: FakeTensor(log, array))
    monkeypatch.setattr(torch.Tensor, "pin_memory", FakeTensor.pin_memory)
    conversion = conversion_to("torch", "cuda:0")
    converted = conversion.convert(sample_of({"x": "data"}, "mask"))
    assert sorted(log[:2]) == ["pin data", "pin mask"]
    assert sorted(log[2:4]) == [
        f"copy {name} to cuda:0 on side, non_blocking=True" for name in ("data", "mask")
    ]
    assert log[4:] == ["event on side"]
    conversion.deliver(converted)
    assert log[5] == "learner waits for event"
    assert sorted(log[6:]) == ["data is used on learner", "mask is used on learner"]


def test_one_sample_is_copied_to_cuda_on_the_callers_stream(monkeypatch):
    log = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch_batch, "as_tensor", lambda array: FakeTensor(log, array))
    monkeypatch.setattr(torch.Tensor, "pin_memory", FakeTensor.pin_memory)
    converter_to("torch", "cuda:0")(sample_of({"x": "data"}, "mask"))
    assert sorted(log[:2]) == ["pin data", "pin mask"]
    assert sorted(log[2:]) == [
        f"copy {name} to cuda:0 on learner, non_blocking=True" for name in ("data", "mask")
    ]


def test_one_sample_on_another_device():
    batch = converter_to("torch", "meta")(sample_of({"x": np.ones(3)}, None))
    assert (batch["x"].device.type, batch["x"].shape) == ("meta", (3,))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_cuda(make_replay):
    """LD4: the copy is complete when the learner's stream reads it."""
    with Loader(make_replay(), "t", 100, to="torch", device="cuda", prefetch=3) as loader:
        for number in range(10):
            batch = next(loader)
            assert batch.data["x"].is_cuda
            assert (batch.data["image"][:, 0].cpu() == batch.data["x"].cpu() % 256).all()
            assert batch.data["x"].cpu().tolist() == list(range(100 * number, 100 * number + 100))
    assert (
        make_replay().sample("t", 3, to="torch", device="cuda")["image"][:, 0].cpu() == torch.arange(3)
    ).all()
    assert next(iter(Loader(make_replay(), "t", 2, to="torch"))).pin_memory().data["x"].is_pinned()


def test_pinning(monkeypatch):
    """LD7: every leaf, and the mask."""
    pinned = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: pinned.append(tensor.shape) or tensor)
    batch = to_torch({"a": np.ones(3), "b": {"c": np.ones(4)}}, np.ones((3, 2), np.bool_)).pin_memory()
    assert type(batch) is TorchBatch
    assert pinned == [(3, 2), (3,), (4,)]


@pytest.mark.parametrize("to", ["numpy", "torch", "jax"])
def test_batches_can_be_pickled(padded, to):
    """LD7."""
    pytest.importorskip(to)
    with Loader(padded, "t", 2, to=to) as loader:
        batch = next(loader)
    again = pickle.loads(pickle.dumps(batch))
    assert type(again) is type(batch)
    for name in ("camera", "speed"):
        np.testing.assert_array_equal(again.data["observation"][name], batch.data["observation"][name])
    np.testing.assert_array_equal(again.mask, batch.mask)
    np.testing.assert_array_equal(again.info.keys, batch.info.keys)


@pytest.mark.parametrize("dumps", [pickle.dumps, ForkingPickler.dumps], ids=["pickle", "worker"])
def test_tensors_of_every_dtype_can_be_pickled(dumps):
    """LD7: torch itself cannot unpickle uint16, uint32 and uint64; a DataLoader's worker sends batches so."""
    data = {name: np.array([[0, 1], [1, 0]]).astype(name) for name in DTYPES}
    data["largest"] = np.array([np.iinfo(np.uint64).max, 0], np.uint64)
    data["strided"] = np.arange(12, dtype=np.uint16).reshape(3, 4)[:, ::2]
    data["nothing"] = np.zeros((0, 3), np.uint32)
    batch = to_torch({"deep": (data,)}, np.array([[True, False]] * 2))
    again = pickle.loads(dumps(batch))
    assert type(again) is TorchBatch
    assert again.mask.tolist() == [[True, False]] * 2
    for name, values in data.items():
        tensor = again.data["deep"][0][name]
        assert tensor.dtype == batch.data["deep"][0][name].dtype
        np.testing.assert_array_equal(tensor.numpy(), values)
    assert deepcopy(batch).data["deep"][0]["uint16"].dtype == torch.uint16


def test_no_framework_is_loaded():
    """LD8."""
    code = (
        "import sys, headrace.loaders as loaders\n"
        "class Replay:\n    def sample(self, *args, **kwargs): return 7\n"
        "with loaders.Loader(Replay(), 't', 1) as loader: assert next(loader) == 7\n"
        "print([name for name in ('torch', 'jax') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=30
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("to", ["torch", "jax"])
def test_a_missing_framework_names_the_extra(scripted, monkeypatch, to):
    """LD8."""
    places = ("headrace.loaders.", "headrace.replay.conversion.")
    for module in [name for name in sys.modules if name.startswith(places)]:
        if to in module:
            monkeypatch.delitem(sys.modules, module)
    found = builtins.__import__

    def import_others(name, *args, **kwargs):
        if name == to or name.startswith(f"{to}."):
            raise ModuleNotFoundError(f"No module named {to!r}", name=to)
        return found(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", import_others)
    with pytest.raises(ImportError, match=rf'pip install "headrace\[{to}\]"'):
        Loader(scripted(), "t", 1, to=to)
