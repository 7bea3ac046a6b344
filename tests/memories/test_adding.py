"""Memories MA1 to MA12: what is written where, and what is refused."""

import logging

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import headrace as hr  # noqa: E402


def make(memory_size=3, num_envs=2, **kwargs):
    memory = hr.memories.RandomMemory(memory_size, num_envs, "cpu", **kwargs)
    memory.create_tensor("x", 2, torch.float32)
    memory.create_tensor("n", 1, torch.int32)
    memory.create_tensor("done", 1, torch.bool)
    return memory


def state(memory):
    tensors = {name: memory.tensors[name].clone() for name in memory.get_tensor_names()}
    return tensors, memory.memory_index, memory.env_index, memory.filled


def assert_same(left, right):
    assert left[1:] == right[1:]
    for name, tensor in left[0].items():
        assert torch.equal(tensor.nan_to_num(-7.0), right[0][name].nan_to_num(-7.0)), name


def rows(*values):
    return torch.tensor(values, dtype=torch.float32).unsqueeze(1).expand(-1, 2)


def column(memory, name="x"):
    return memory.tensors_view[name][:, 0].tolist()


def test_one_sample_without_axis_ma1():
    memory = make(2, 2)
    heads = []
    for value in range(4):
        memory.add_samples(x=torch.full((2,), float(value)))
        heads.append((memory.memory_index, memory.env_index, memory.filled))
    assert heads == [(0, 1, False), (1, 0, False), (1, 1, False), (0, 0, True)]
    assert column(memory) == [0, 1, 2, 3]


def test_some_environments_ma2():
    memory = make(2, 4)
    memory.add_samples(x=rows(0, 1, 2))
    assert (memory.memory_index, memory.env_index) == (0, 3)
    memory.add_samples(x=rows(3))
    assert (memory.memory_index, memory.env_index) == (1, 0)
    assert column(memory)[:4] == [0, 1, 2, 3]


def test_a_whole_row_ma3():
    memory = make(2, 2)
    memory.add_samples(x=rows(0, 1))
    assert (memory.memory_index, memory.env_index, memory.filled) == (1, 0, False)
    memory.add_samples(x=rows(2, 3))
    assert (memory.memory_index, memory.env_index, memory.filled) == (0, 0, True)
    memory.add_samples(x=rows(4, 5))
    assert column(memory) == [4, 5, 2, 3]
    assert (memory.memory_index, memory.filled) == (1, True)


def test_many_steps_of_one_environment_ma4():
    memory = make(5, 1)
    memory.add_samples(x=rows(0, 1, 2))
    memory.add_samples(x=rows(3, 4, 5, 6))
    assert column(memory) == [5, 6, 2, 3, 4]
    assert (memory.memory_index, memory.filled, len(memory)) == (2, True, 5)


@pytest.mark.parametrize("before", [0, 2, 4])
@pytest.mark.parametrize("count", [1, 2, 4, 5, 9, 10, 17])
def test_many_steps_are_as_many_single_adds_ma4(before, count):
    at_once, singly = make(4, 1), make(4, 1)
    for memory in (at_once, singly):
        for value in range(before):
            memory.add_samples(x=rows(-value))
    at_once.add_samples(x=rows(*range(count)), n=torch.arange(count, dtype=torch.int32).view(-1, 1))
    for value in range(count):
        singly.add_samples(x=rows(value), n=torch.tensor([value], dtype=torch.int32))
    assert_same(state(at_once), state(singly))


def test_each_tensor_is_read_by_its_own_shape_ma5():
    memory = hr.memories.Memory(4, 1, "cpu")
    memory.create_tensor("image", (2, 2), keep_dimensions=True)
    memory.create_tensor("x", 3)
    memory.add_samples(image=torch.ones(2, 2), x=torch.ones(1, 3))
    assert len(memory) == 1
    memory.add_samples(x=torch.ones(2, 3), image=torch.ones(2, 2, 2), other=torch.ones(7))
    assert len(memory) == 3


@pytest.mark.parametrize(
    "samples",
    [
        {"x": torch.zeros(2, 1)},  # a feature axis
        {"x": torch.zeros(2, 2), "n": torch.zeros(1, 1, dtype=torch.int32)},  # one value for two environments
        {"x": torch.zeros(2, 2), "n": torch.zeros(1, dtype=torch.int32)},
        {"x": torch.zeros(2, 2), "n": torch.zeros(2, dtype=torch.int32)},  # (n,) for (n, 1)
        {"x": torch.zeros(())},
        {"x": torch.zeros(1, 2, 2)},
        {"x": torch.zeros(4)},
        {"x": rows(0, 1), "done": torch.zeros(1, 2, dtype=torch.bool)},
    ],
)
def test_nothing_is_broadcast_ma5(samples):
    memory = make()
    memory.add_samples(x=rows(1, 2))
    before = state(memory)
    with pytest.raises(ValueError, match=r"expected (shape|\d samples)"):
        memory.add_samples(**samples)
    assert_same(before, state(memory))


def test_unknown_names_and_none_are_skipped_ma6(caplog):
    memory = make()
    with caplog.at_level(logging.INFO, logger="headrace"):
        for _ in range(3):
            memory.add_samples(x=rows(1, 2), next_states="whatever", n=None, missing=None)
    assert [record.getMessage().count("next_states") for record in caplog.records] == [1]
    assert memory.filled


@pytest.mark.parametrize("samples", [{}, {"other": torch.zeros(2, 1)}, {"x": None}, {"other": 1, "x": None}])
def test_nothing_to_add_ma6(samples):
    memory = make()
    with pytest.raises(ValueError, match="nothing to add"):
        memory.add_samples(**samples)
    assert (memory.memory_index, memory.env_index) == (0, 0)


@pytest.mark.parametrize("num_envs", [1, 2])
def test_what_is_left_out_gets_the_empty_value_ma7(num_envs):
    memory = make(2, num_envs)
    full = {"x": torch.ones(1, 2), "n": torch.ones(1, 1, dtype=torch.int32), "done": torch.ones(1, 1).bool()}
    for _ in range(2 * num_envs):
        memory.add_samples(**full)
    memory.add_samples(n=full["n"])
    assert memory.tensors["x"][0, 0].isnan().all()
    assert memory.tensors["done"].flatten().tolist() == [False] + [True] * (2 * num_envs - 1)
    assert not memory.tensors["x"].flatten(0, 1)[1:].isnan().any()


KINDS = {torch.bool: 0, torch.uint8: 1, torch.int32: 1, torch.int64: 1, torch.float32: 2, torch.float64: 2}
KINDS |= {torch.bfloat16: 2, torch.complex64: 3}


@pytest.mark.parametrize("target", KINDS)
@pytest.mark.parametrize("source", KINDS)
def test_casts_within_a_kind_or_wider_ma8(source, target):
    memory = hr.memories.Memory(1, 2, "cpu")
    memory.create_tensor("x", 1, target)
    value = torch.ones(2, 1, dtype=source)
    if KINDS[source] <= KINDS[target] or (KINDS[source], KINDS[target]) == (1, 0):
        memory.add_samples(x=value)
        assert (memory.tensors["x"] == 1).all()
    else:
        with pytest.raises(ValueError) as caught:
            memory.add_samples(x=value)
        assert all(part in str(caught.value) for part in ("x", str(source), str(target)))
        assert len(memory) == 0


@pytest.mark.parametrize(
    ("values", "source", "target"),
    [
        ([0, 300], torch.int64, torch.uint8),
        ([-1, 0], torch.int64, torch.uint8),
        ([0, 2], torch.int64, torch.bool),
        ([-1, 0], torch.int8, torch.bool),
        ([0, 200], torch.uint8, torch.int8),
        ([0, 2**40], torch.int64, torch.int32),
        ([0, 40000], torch.uint16, torch.int16),
    ],
)
def test_integers_must_fit_ma8(values, source, target):
    memory = hr.memories.Memory(2, 2, "cpu")
    memory.create_tensor("x", 1, target)
    with pytest.raises(ValueError, match=f"x: expected {target}"):
        memory.add_samples(x=torch.tensor(values, dtype=source).view(2, 1))
    assert len(memory) == 0
    memory.add_samples(x=torch.tensor([0, 1], dtype=source).view(2, 1))
    assert memory.tensors["x"][0].flatten().tolist() == [0, 1]


def test_arrays_and_tensors_are_taken_ma9():
    memory = make(8, 2)
    reversed_rows = np.ones((2, 2), np.float32)[::-1]
    read_only = np.ones((2, 2), np.float32)
    read_only.flags.writeable = False
    for value in (
        np.ones((2, 2)),
        np.ones((2, 2), ">f4"),
        reversed_rows,
        read_only,
        np.asfortranarray(np.ones((2, 2), np.float32)),
        torch.ones(2, 2).to_sparse(),
        torch.nn.Parameter(torch.ones(2, 2)),
    ):
        memory.add_samples(x=value)
    assert memory.tensors["x"][:7].eq(1).all()
    for value in (
        1.0,
        [1.0, 2.0],
        np.float32(1),
        "x",
        np.array([["a", "b"]]),
        torch.ones(2, 2, device="meta"),
    ):
        with pytest.raises(TypeError, match="x: expected"):
            memory.add_samples(x=value)
    assert memory.memory_index == 7


def test_values_are_copied_without_gradient_ma9():
    memory = make(3, 2)
    weight = torch.ones(2, 2, requires_grad=True)
    value = np.ones((2, 2), np.float32)
    memory.add_samples(x=weight * 2)
    memory.add_samples(x=value)
    value[:] = 5
    assert not memory.tensors["x"].requires_grad
    assert memory.tensors["x"][:2].flatten().tolist() == [2] * 4 + [1] * 4


def test_a_refused_call_changes_nothing_ma10():
    memory = make(2, 2)
    memory.add_samples(x=rows(1, 2), n=torch.ones(2, 1, dtype=torch.int32))
    before = state(memory)
    refused = [
        {"x": rows(3, 4), "n": torch.zeros(2, 1)},
        {"x": rows(3, 4), "n": torch.full((2, 1), 2**40)},
        {"x": rows(3, 4), "done": 1},
        {"x": rows(3, 4), "done": torch.zeros(1, 1, dtype=torch.bool)},
        {"x": rows(1, 2, 3)},
    ]
    for samples in refused:
        with pytest.raises((ValueError, TypeError)):
            memory.add_samples(**samples)
        assert_same(before, state(memory))


def test_own_tensors_may_be_added_ma10():
    memory = hr.memories.Memory(2, 2, "cpu")
    for name in "ab":
        memory.create_tensor(name, 1, torch.float32)
    memory.add_samples(a=torch.tensor([[1.0], [2.0]]), b=torch.tensor([[3.0], [4.0]]))
    memory.reset()
    memory.add_samples(a=memory.tensors["b"][0], b=memory.tensors["a"][0])
    assert memory.tensors["a"][0].flatten().tolist() == [3, 4]
    assert memory.tensors["b"][0].flatten().tolist() == [1, 2]

    steps = hr.memories.Memory(4, 1, "cpu")
    steps.create_tensor("x", 1)
    steps.add_samples(x=torch.arange(4.0).view(4, 1))
    steps.memory_index = 1
    steps.add_samples(x=steps.tensors_view["x"][:3])
    assert steps.tensors["x"].flatten().tolist() == [0, 0, 1, 2]


def test_no_more_samples_than_the_row_has_room_for_ma11():
    memory = make(3, 3)
    memory.add_samples(x=rows(0))
    for count in (3, 4):
        with pytest.raises(ValueError, match="env_index is 1 of 3"):
            memory.add_samples(x=rows(*range(count)))
    assert (memory.memory_index, memory.env_index) == (0, 1)
    memory.add_samples(x=torch.zeros(0, 2))
    assert (memory.memory_index, memory.env_index, len(memory)) == (0, 1, 1)
    memory.add_samples(x=rows(1, 2))
    assert (memory.memory_index, memory.env_index) == (1, 0)


def test_export_at_each_lap_ma12(tmp_path):
    memory = make(3, 2, export=True, export_directory=tmp_path)
    for value in range(7):
        memory.add_samples(x=rows(value, value))
    files = sorted((tmp_path / "memories").iterdir())
    assert len(files) == 2
    assert [torch.load(file)["x"][:, 0, 0].tolist() for file in files] == [[0, 1, 2], [3, 4, 5]]


def test_export_of_laps_within_one_call_ma12(tmp_path):
    memory = make(3, 1, export=True, export_format="csv", export_directory=str(tmp_path))
    memory.add_samples(x=rows(*range(8)))
    files = sorted((tmp_path / "memories").iterdir())
    laps = []
    for file in files:
        copy = make(3, 1)
        copy.load(file)
        assert copy.filled
        laps.append(column(copy))
    assert laps == [[0, 1, 2], [3, 4, 5]]
    assert column(memory) == [6, 7, 5]
    assert (memory.memory_index, memory.filled) == (2, True)


def test_reset_keeps_the_data():
    memory = make(2, 2)
    memory.add_samples(x=rows(1, 2))
    memory.sample(["x"], 2)
    indexes = memory.get_sampling_indexes()
    memory.reset()
    assert (len(memory), memory.memory_index, memory.env_index, memory.filled) == (0, 0, 0, False)
    assert column(memory)[:2] == [1, 2]
    assert memory.get_sampling_indexes() is indexes
    assert memory.sample_all(["x"])[0][0].shape == (0, 2)
    with pytest.raises(ValueError, match="nothing to draw"):
        memory.sample(["x"], 1)


@pytest.mark.parametrize("name", ["self", "names", "file"])
def test_any_identifier_is_a_name(name, tmp_path):
    memory = hr.memories.Memory(2, 1, "cpu")
    memory.create_tensor(name, 1)
    memory.add_samples(**{name: torch.ones(1)})
    for suffix in ("pt", "npz", "csv"):
        copy = hr.memories.Memory(2, 1, "cpu")
        copy.load(memory.save(tmp_path, suffix))
        assert copy.sample_all([name])[0][0].tolist() == [[1]]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.complex64, torch.float8_e4m3fn])
def test_dtypes_that_numpy_lacks_or_torch_rarely_has(dtype):
    memory = hr.memories.Memory(2, 2, "cpu")
    memory.create_tensor("x", 1, dtype)
    memory.create_tensor("y", 1)
    memory.add_samples(x=torch.ones(2, 1).to(dtype), y=torch.ones(2, 1))
    memory.add_samples(y=torch.ones(2, 1))
    assert memory.tensors["x"][0].to(torch.complex64).flatten().tolist() == [1, 1]
    assert memory.sample_by_index(["x"], [0])[0][0].dtype is dtype


def test_large_rows_go_the_other_way():
    memory = hr.memories.Memory(2, 2, "cpu")
    memory.create_tensor("x", 40_000)
    memory.create_tensor("y", 1)
    value = torch.rand(2, 40_000)
    memory.add_samples(x=value, y=np.ones((2, 1)))
    assert torch.equal(memory.tensors["x"][0], value)
    memory.add_samples(y=torch.ones(2, 1))
    assert memory.tensors["x"][1].isnan().all()
    assert torch.equal(memory.sample_by_index(["x"], [1, 0])[0][0], value[[1, 0]])
