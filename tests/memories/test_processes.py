"""Memories MP1 to MP5: one memory in several processes, and independent copies of one."""

import copy
import io
import multiprocessing
import pickle
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import headrace as hr  # noqa: E402

METHODS = [method for method in ("fork", "spawn") if method in multiprocessing.get_all_start_methods()]


@pytest.fixture(autouse=True)
def _child_finds_this_module(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))


def make(**kwargs):
    memory = hr.memories.RandomMemory(4, 2, "cpu", **kwargs)
    memory.create_tensor("x", 1, torch.float32)
    memory.create_tensor("half", 1, torch.bfloat16)
    memory.add_samples(x=torch.tensor([[1.0], [2.0]]), half=torch.ones(2, 1))
    return memory


def child(memory, there):
    """Does what it is told to the memory and says what it sees, until it is told to end."""
    while (request := there.recv()) != "end":
        if request == "add":
            memory.add_samples(x=torch.full((2, 1), 5.0), half=torch.full((2, 1), 5.0))
        elif request == "reset":
            memory.reset()
        elif request == "set":
            memory.set_tensor_by_name("x", torch.tensor(9.0))
        elif request == "sample":
            memory.sample(["x"], 3)
        x = memory.sample_all(["x"])[0][0].flatten().tolist()
        indexes = memory.get_sampling_indexes()
        there.send((x, memory.memory_index, memory.filled, None if indexes is None else indexes.tolist()))


class Other:
    """A child process with a memory, asked step by step."""

    def __init__(self, method, library, memory):
        context = library.get_context(method)
        self.here, there = context.Pipe()
        self.process = context.Process(target=child, args=(memory, there))
        self.process.start()
        there.close()

    def __enter__(self):
        return self

    def ask(self, request):
        self.here.send(request)
        return self.here.recv()

    def __exit__(self, *exc):
        self.here.send("end")
        self.process.join()
        self.here.close()
        assert self.process.exitcode == 0
        self.process.close()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("library", [multiprocessing, torch.multiprocessing], ids=["python", "torch"])
@pytest.mark.parametrize("method", METHODS)
def test_both_see_one_memory_mp1_mp2_mp4(method, library):
    memory = make(generator=torch.Generator().manual_seed(1))
    memory.share_memory()
    with Other(method, library, memory) as other:
        assert other.ask("look") == ([1, 2], 1, False, None)
        memory.add_samples(x=torch.full((2, 1), 3.0))
        assert other.ask("look")[:3] == ([1, 2, 3, 3], 2, False)
        assert other.ask("add")[:3] == ([1, 2, 3, 3, 5, 5], 3, False)
        assert (len(memory), memory.memory_index) == (6, 3)
        assert memory.tensors["half"][2].flatten().tolist() == [5, 5]
        other.ask("add")
        assert (len(memory), memory.memory_index, memory.filled) == (8, 0, True)
        other.ask("set")
        assert (memory.tensors["x"] == 9).all()
        # MP4: sampling there changes neither the indexes nor the generator here.
        theirs = other.ask("sample")[3]
        assert memory.get_sampling_indexes() is None
        memory.sample(["x"], 3)
        assert memory.get_sampling_indexes().tolist() == theirs
        other.ask("reset")
        assert (len(memory), memory.filled) == (0, False)


def test_a_memory_that_is_not_shared_goes_as_a_copy_mp5():
    memory = make()
    memory.sample(["x"], 2)
    with Other("spawn", multiprocessing, memory) as other:
        assert other.ask("add")[:3] == ([1, 2, 5, 5], 2, False)
        assert len(memory) == 2
        assert not memory.tensors["x"].is_shared()
        assert memory.tensors["x"][1].isnan().all()
        memory.add_samples(x=torch.zeros(2, 1))
        assert other.ask("look")[0] == [1, 2, 5, 5]


def test_sharing_keeps_everything_mp1():
    memory = make()
    storage, view, attribute = memory.tensors["x"], memory.tensors_view["x"], memory._tensor_x
    memory.share_memory()
    address = storage.data_ptr()
    memory.share_memory()
    assert storage.data_ptr() == address
    assert memory.tensors["x"] is storage
    assert all(tensor.is_shared() for tensor in (storage, view, attribute))
    assert (len(memory), storage[0].flatten().tolist()) == (2, [1, 2])
    memory.add_samples(x=torch.full((2, 1), 4.0))
    assert view[2:4].flatten().tolist() == attribute[1].flatten().tolist() == [4, 4]
    memory.create_tensor("later", 1)
    assert memory.tensors["later"].is_shared()


def test_the_head_moves_after_the_data_mp3():
    memory = make()
    memory.share_memory()
    seen = []
    slot = memory._slots["x"]

    class Watched:
        def __getattr__(self, name):
            return getattr(slot, name)

        def write(self, *args):
            seen.append(len(memory))
            slot.write(*args)

    memory._slots["x"] = Watched()
    memory.add_samples(x=torch.ones(2, 1))
    assert seen == [2]
    assert len(memory) == 4


def test_a_tensor_that_is_sent_alone_stays_the_memorys():
    # torch moves a tensor into shared memory when it is sent to a process: what was noted of its place is stale then.
    memory = make()
    memory.tensors["x"].share_memory_()
    memory.add_samples(x=torch.full((2, 1), 4.0))
    assert memory.tensors["x"][1].flatten().tolist() == [4, 4]
    memory.add_samples(half=torch.ones(2, 1))
    assert memory.tensors["x"][2].isnan().all()


def through_pickle(memory):
    return pickle.loads(pickle.dumps(memory))


def through_torch(memory):
    stream = io.BytesIO()
    torch.save(memory, stream)
    stream.seek(0)
    return torch.load(stream, weights_only=False)


class Derived(hr.memories.RandomMemory):
    def __init__(self, memory_size):
        super().__init__(
            memory_size, 2, "cpu", generator=torch.Generator().manual_seed(3), export_format="csv"
        )
        self.own = [1, 2]


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("copied", [copy.deepcopy, through_pickle, through_torch])
def test_copies_are_independent_mp5(copied, shared):
    memory = Derived(3)
    memory.create_tensor("x", (2, 2), torch.float64, keep_dimensions=True)
    memory.create_tensor("absent", None)
    memory.add_samples(x=np.ones((2, 2, 2)))
    memory.sample(["x"], 2)
    if shared:
        memory.share_memory()
    other = copied(memory)
    assert type(other) is Derived
    assert (other.own, other.export_format, other.memory_size) == ([1, 2], "csv", 3)
    assert (len(other), other.memory_index) == (2, 1)
    assert other.sample_all(["absent"]) == [[None]]
    assert other._tensor_x is other.tensors["x"]
    assert torch.equal(other.get_sampling_indexes(), memory.get_sampling_indexes())
    for each in (memory, other):
        each.sample(["x"], 5)
    assert torch.equal(other.get_sampling_indexes(), memory.get_sampling_indexes())
    other.add_samples(x=np.zeros((2, 2, 2)))
    other.tensors["x"][0] = 8
    assert (len(memory), len(other)) == (2, 4)
    assert (memory.tensors["x"][0] == 1).all()
    memory.add_samples(x=np.full((2, 2, 2), 3.0))
    assert (other.tensors["x"][1] == 0).all()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_cuda_tensors_stay_mp1():
    memory = hr.memories.RandomMemory(4, 2, "cuda:0")
    memory.create_tensor("x", 1)
    memory.share_memory()
    memory.add_samples(x=torch.ones(2, 1))
    assert memory.tensors["x"].is_cuda
    assert len(memory) == 2
    assert torch.equal(copy.deepcopy(memory).sample_all(["x"])[0][0], memory.sample_all(["x"])[0][0])
