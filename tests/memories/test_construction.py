"""Memories MC1 to MC9, MT1 to MT9: making a memory and its tensors."""

import subprocess
import sys
import warnings

import gymnasium as gym
import numpy as np
import pytest

torch = pytest.importorskip("torch")

import headrace as hr  # noqa: E402

Box, Discrete = gym.spaces.Box, gym.spaces.Discrete
box = Box(-1, 1, (2,), np.float32)


def make(memory_size=4, num_envs=2, cls=hr.memories.RandomMemory, **kwargs):
    return cls(memory_size, num_envs, "cpu", **kwargs)


@pytest.mark.parametrize("cls", [hr.memories.Memory, hr.memories.RandomMemory])
def test_arguments_by_position_and_by_name_mc1(cls, tmp_path):
    args = [4, 2, "cpu", True, "csv", str(tmp_path)]
    names = ["memory_size", "num_envs", "device", "export", "export_format", "export_directory"]
    if cls is hr.memories.RandomMemory:
        args, names = [*args, False], [*names, "replacement"]
    for memory in (cls(*args), cls(**dict(zip(names, args, strict=True)))):
        assert (memory.memory_size, memory.num_envs, memory.device) == (4, 2, torch.device("cpu"))
        assert (memory.export, memory.export_format, memory.export_directory) == (True, "csv", str(tmp_path))


@pytest.mark.parametrize("size", [0, -1])
def test_sizes_below_one_are_refused_mc2(size):
    with pytest.raises(ValueError, match="memory_size"):
        make(size)
    with pytest.raises(ValueError, match="num_envs"):
        make(1, size)


@pytest.mark.parametrize("size", [1.5, "3", None, True])
def test_sizes_of_another_type_are_refused_mc2(size):
    with pytest.raises(TypeError):
        make(size)


def test_numpy_integers_are_sizes_mc2():
    assert make(np.int64(3), np.int32(2)).memory_size == 3


def test_device_mc3():
    expected = "cuda:0" if torch.cuda.is_available() else "cpu"
    assert hr.memories.Memory(1).device == torch.device(expected)
    assert hr.memories.Memory(1, device=torch.device("cpu")).device == torch.device("cpu")
    with pytest.raises(ValueError, match="nonsense"):
        hr.memories.Memory(1, device="nonsense")
    absent = f"cuda:{torch.cuda.device_count()}"
    with pytest.warns(RuntimeWarning, match=absent):
        assert hr.memories.Memory(1, device=absent).device == torch.device("cpu")


def test_a_derived_class_with_a_cuda_default_works_without_cuda_mc3_mc8():
    absent = f"cuda:{torch.cuda.device_count()}"

    class Newest(hr.memories.Memory):
        def __init__(self, memory_size, device=absent):
            super().__init__(memory_size, device=device)

        def sample(self, names, batch_size):
            self.sampling_indexes = self.sequence_starts(1)[-batch_size:]
            return self.sample_by_index(names, self.sampling_indexes)

    with pytest.warns(RuntimeWarning):
        memory = Newest(3)
    memory.create_tensor("x", 1)
    for value in range(5):
        memory.add_samples(x=torch.tensor([float(value)]))
    assert memory.sample(["x"], 2)[0][0].flatten().tolist() == [3, 4]
    assert memory.get_sampling_indexes().tolist() == [0, 1]


def test_export_formats_mc4(tmp_path):
    for name in ("pt", "npz", "np", "csv"):
        make(export_format=name)
    assert make(export_format="np").export_format == "npz"
    with pytest.raises(ValueError, match="json"):
        make(export_format="json")


def test_attributes_mc5():
    memory = make(3, 2)
    assert (memory.memory_index, memory.env_index, memory.filled, memory.sampling_indexes) == (
        0,
        0,
        False,
        None,
    )
    assert memory.all_sequence_indexes.tolist() == [0, 2, 4, 1, 3, 5]
    memory.memory_index, memory.env_index, memory.filled = 2, 1, True
    assert (memory.memory_index, memory.env_index, memory.filled, len(memory)) == (2, 1, True, 6)
    memory.filled = False
    memory.sampling_indexes = [1]
    assert len(memory) == 5
    assert memory.get_sampling_indexes() == [1]
    for name, value in (("memory_index", 3), ("env_index", 2), ("env_index", -1)):
        with pytest.raises(ValueError, match="expected memory_index"):
            setattr(memory, name, value)
    assert (memory.memory_index, memory.env_index) == (2, 1)


def test_one_storage_behind_every_name_mc6(tmp_path):
    memory = make(3, 2)
    memory.create_tensor("x", (2, 3), keep_dimensions=True)
    storage, view = memory.tensors["x"], memory.tensors_view["x"]
    assert storage.shape == (3, 2, 2, 3)
    assert view.shape == (6, 2, 3)

    def check(value):
        memory.set_tensor_by_name("x", torch.tensor(value))
        for tensor in (storage, view, memory._tensor_x, memory.get_tensor_by_name("x")):
            assert (tensor == value).all()
        assert memory._tensor_x is memory.tensors["x"]

    check(1.0)
    memory.load(memory.save(tmp_path))
    check(2.0)
    memory.share_memory()
    check(3.0)
    memory.add_samples(x=torch.full((2, 2, 3), 4.0))
    assert (storage[0] == 4).all()


def test_len_and_truth_mc7():
    memory = make(2, 2)
    memory.create_tensor("x", 1)
    assert not memory
    lengths = []
    for _ in range(5):
        memory.add_samples(x=torch.zeros(1))
        lengths.append(len(memory))
    assert lengths == [1, 2, 3, 4, 4]
    assert memory


def test_the_base_class_does_not_sample_mc8():
    memory = make(cls=hr.memories.Memory)
    memory.create_tensor("x", 1)
    memory.add_samples(x=torch.zeros(2, 1))
    with pytest.raises(NotImplementedError):
        memory.sample(["x"], 1)
    assert memory.sample_all(["x"])[0][0].shape == (2, 1)


def test_repr_mc9():
    memory = make(4, 2)
    memory.create_tensor("x", 3, torch.int32)
    memory.add_samples(x=torch.zeros(1, 3, dtype=torch.int32))
    text = repr(memory)
    for part in ("RandomMemory", "memory_size=4", "num_envs=2", "cpu", "x: (4, 2, 3) int32", "1 of 8"):
        assert part in text


@pytest.mark.parametrize(
    ("size", "flat", "kept"),
    [
        (3, 3, (3,)),
        (np.int64(3), 3, (3,)),
        ((2, 3), 6, (2, 3)),
        ([2, 3], 6, (2, 3)),
        ((), 1, ()),
        (box, 2, (2,)),
        (Box(0, 255, (4, 5, 3), np.uint8), 60, (4, 5, 3)),
        (Box(0, 1, ()), 1, ()),
        (Discrete(7), 1, (1,)),
        (gym.spaces.MultiDiscrete([3, 4, 5]), 3, (3,)),
        (gym.spaces.MultiDiscrete([[3, 4], [5, 6]]), 4, (2, 2)),
        (gym.spaces.MultiBinary(5), 5, (5,)),
        (gym.spaces.MultiBinary((2, 3)), 6, (2, 3)),
        (gym.spaces.Tuple([Discrete(3), box]), 3, None),
        (gym.spaces.Dict(a=gym.spaces.Tuple([Discrete(3), gym.spaces.Dict(b=box)]), c=Discrete(2)), 4, None),
    ],
)
def test_sizes_mt1_mt2(size, flat, kept):
    memory = make(4, 2)
    assert memory.create_tensor("flat", size)
    assert memory.tensors["flat"].shape == (4, 2, flat)
    if kept is None:
        with pytest.raises(ValueError, match="no one shape"):
            memory.create_tensor("kept", size, keep_dimensions=True)
    else:
        assert memory.create_tensor("kept", size, keep_dimensions=True)
        assert memory.tensors["kept"].shape == (4, 2, *kept)


def test_a_derived_space_counts_as_its_base_mt1():
    class Named(Discrete):
        pass

    memory = make()
    memory.create_tensor("x", Named(5))
    assert memory.tensors["x"].shape[2:] == (1,)


@pytest.mark.parametrize(
    "size",
    [
        0,
        -1,
        (2, 0),
        (-1, -2),
        Box(0, 1, (0,)),
        gym.spaces.Text(4),
        gym.spaces.Tuple([]),
        2.0,
        "3",
        (2, 1.5),
        object(),
    ],
)
@pytest.mark.parametrize("keep_dimensions", [False, True])
def test_wrong_sizes_make_nothing_mt3(size, keep_dimensions):
    memory = make()
    with pytest.raises(ValueError, match="size"):
        memory.create_tensor("x", size, keep_dimensions=keep_dimensions)
    assert memory.get_tensor_names() == ()


@pytest.mark.parametrize("name", ["a b", "1x", "", "a.b", "__headrace__", 3])
def test_wrong_names_make_nothing_mt3(name):
    memory = make()
    with pytest.raises(ValueError, match="name"):
        memory.create_tensor(name, 1)
    assert memory.get_tensor_names() == ()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.complex64])
def test_new_cells_hold_nan_mt4(dtype):
    memory = make()
    memory.create_tensor("x", 2, dtype)
    assert memory.tensors["x"].isnan().all()


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.uint16])
def test_new_cells_hold_zero_mt4(dtype):
    memory = make()
    memory.create_tensor("x", 2, dtype)
    assert (memory.tensors["x"] == 0).all()
    assert memory.tensors["x"].dtype is dtype


def test_default_dtype_mt4():
    memory = make()
    memory.create_tensor("x", 1)
    assert memory.tensors["x"].dtype is torch.get_default_dtype()
    with pytest.raises(TypeError, match="dtype"):
        memory.create_tensor("y", 1, np.float32)


def test_creating_again_mt5():
    memory = make()
    assert memory.create_tensor("x", (2, 3), torch.float32, keep_dimensions=True)
    memory.set_tensor_by_name("x", torch.tensor(1.0))
    assert memory.create_tensor("x", (2, 3), keep_dimensions=True) is False
    assert memory.create_tensor("x", (2, 3), torch.float32, keep_dimensions=True) is False
    for size, dtype, keep in ((6, None, False), ((5, 3), None, True), ((2, 3), torch.float64, True)):
        with pytest.raises(ValueError, match="x exists with"):
            memory.create_tensor("x", size, dtype, keep)
    assert (memory.tensors["x"] == 1).all()


def test_creating_touches_no_other_tensor_mt6():
    memory = make()
    memory.create_tensor("x", 1)
    memory.add_samples(x=torch.ones(2, 1))
    memory.create_tensor("y", 1)
    assert memory.sample_all(["x"])[0][0].tolist() == [[1], [1]]


def test_absent_tensors_mt7():
    memory = make()
    assert memory.create_tensor("x", None) is False
    memory.create_tensor("y", 1)
    memory.add_samples(x=torch.ones(2, 1), y=torch.ones(2, 1))
    assert memory.get_tensor_names() == ("y",)
    assert memory.sample_all(("x", "y"))[0][0] is None
    assert memory.sample(["x"], 2) == [[None]]
    assert memory.sample_by_index(["x"], [0]) == [[None]]
    assert memory.create_tensor("x", 1) is True
    assert memory.sample_all(["x"])[0][0].isnan().all()
    assert memory.create_tensor("x", None) is False
    assert memory.get_tensor_names() == ("x", "y")


def test_names_are_sorted_mt8():
    memory = make()
    for name in ("b", "a", "B", "a1", "_z"):
        memory.create_tensor(name, 1)
    assert memory.get_tensor_names() == ("B", "_z", "a", "a1", "b")
    assert memory.get_tensor_by_name("a") is memory.tensors["a"]
    assert memory.get_tensor_by_name("a", keepdim=False) is memory.tensors_view["a"]
    with pytest.raises(KeyError, match="nope"):
        memory.get_tensor_by_name("nope")


def test_set_tensor_mt9():
    memory = make(2, 2)
    memory.create_tensor("x", 3)
    memory.create_tensor("n", 1, torch.int8)
    memory.set_tensor_by_name("x", torch.arange(12).view(2, 2, 3))
    assert memory.tensors["x"].flatten().tolist() == list(range(12))
    memory.set_tensor_by_name("x", memory.tensors["x"])
    assert memory.tensors["x"].flatten().tolist() == list(range(12))
    memory.set_tensor_by_name("x", memory.tensors["x"].transpose(0, 1))
    assert memory.tensors["x"][:, :, 0].flatten().tolist() == [0, 6, 3, 9]
    memory.set_tensor_by_name("x", torch.nn.Parameter(torch.tensor(5.0)))
    assert (memory.tensors["x"] == 5).all()
    assert not memory.tensors["x"].requires_grad
    assert (memory.memory_index, memory.env_index, memory.filled) == (0, 0, False)
    for value in (torch.zeros(3), torch.zeros(1, 2, 3), torch.zeros(2, 2, 1)):
        with pytest.raises(ValueError, match="expected shape"):
            memory.set_tensor_by_name("x", value)
    with pytest.raises(ValueError, match="int8"):
        memory.set_tensor_by_name("n", torch.tensor(300))
    with pytest.raises(ValueError, match="int8"):
        memory.set_tensor_by_name("n", torch.tensor(1.0))
    with pytest.raises(KeyError, match="nope"):
        memory.set_tensor_by_name("nope", torch.tensor(1.0))
    assert (memory.tensors["x"] == 5).all()


def test_headrace_alone_loads_no_torch():
    code = "import sys, headrace; assert 'torch' not in sys.modules; headrace.memories; assert 'torch' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_torch_the_error_names_the_extra():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "try: import headrace.memories\n"
        "except ImportError as error: assert 'headrace[torch]' in str(error), error\n"
        "else: raise SystemExit(1)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_tensors_made_in_inference_mode_can_be_written_later():
    memory = make()
    with torch.inference_mode():
        memory.create_tensor("x", 1)
        memory.add_samples(x=torch.ones(2, 1))
    memory.add_samples(x=torch.ones(2, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert memory.sample(["x"], 3)[0][0].tolist() == [[1], [1], [1]]
