"""Memories MR1 to MR10: copies of rows."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import headrace as hr  # noqa: E402


def filled(memory_size, num_envs, steps, cls=hr.memories.RandomMemory, **kwargs):
    """A memory whose `x` says (step, environment) of each sample."""
    memory = cls(memory_size, num_envs, "cpu", **kwargs)
    memory.create_tensor("x", 2, torch.int64)
    for step in range(steps):
        memory.add_samples(x=torch.tensor([[step, env] for env in range(num_envs)]))
    return memory


def lengths(batches):
    return [len(batch[0]) for batch in batches]


def test_names_mr1():
    memory = filled(2, 2, 1)
    memory.create_tensor("y", 1)
    memory.create_tensor("absent", None)
    for read in (memory.sample_all, lambda names: memory.sample(names, 1)):
        for names in ("x", "xy", None, 3):
            with pytest.raises(TypeError, match="names"):
                read(names)
        with pytest.raises(KeyError, match="nope"):
            read(["x", "nope", "absent"])
        y, absent, x = read(("y", "absent", "x"))[0]
        assert (y.shape[1], absent, x.shape[1]) == (1, None, 2)


def test_splitting_mr2():
    memory = filled(5, 1, 5)
    assert lengths(memory.sample_all(["x"], 2)) == [3, 2]
    assert lengths(memory.sample_all(["x"], 7)) == [1, 1, 1, 1, 1, 0, 0]
    assert lengths(memory.sample_by_index(["x"], list(range(5)), 3)) == [2, 2, 1]
    assert lengths(memory.sample(["x"], 5, 2, 3)) == [9, 6]
    assert torch.cat([batch[0] for batch in memory.sample_all(["x"], 3)])[:, 0].tolist() == list(range(5))
    for read in (
        lambda: memory.sample_all(["x"], 0),
        lambda: memory.sample(["x"], 1, -1),
        lambda: memory.sample_by_index(["x"], [0], 0),
    ):
        with pytest.raises(ValueError, match="mini_batches"):
            read()


@pytest.mark.parametrize(
    "indexes",
    [
        [0, 3, -1],
        (0, 3, -1),
        np.array([0, 3, -1], np.int8),
        np.array([0, 3, 5], np.uint8),
        torch.tensor([0, 3, -1]),
        torch.tensor([0, 3, -1], dtype=torch.int32),
        [True, False, False, True, False, True],
        np.array([1, 0, 0, 1, 0, 1], bool),
        torch.tensor([1, 0, 0, 1, 0, 1], dtype=torch.bool),
    ],
)
def test_indexes_mr3(indexes):
    memory = filled(3, 2, 3)
    assert memory.sample_by_index(["x"], indexes)[0][0].tolist() == [[0, 0], [1, 1], [2, 1]]
    assert memory.get_sampling_indexes() is None


@pytest.mark.parametrize(
    "indexes", [slice(1, 4), slice(None), slice(None, None, -2), slice(-2, None), slice(4, 1)]
)
def test_slices_mr3(indexes):
    memory = filled(3, 2, 2)
    expected = memory.tensors_view["x"].tolist()[indexes]
    assert memory.sample_by_index(["x"], indexes)[0][0].tolist() == expected


@pytest.mark.parametrize(
    "indexes",
    [
        [6],
        [-7],
        [0, 100],
        [True] * 5,
        torch.ones(7, dtype=torch.bool),
        [0.0],
        torch.zeros(2),
        [[0], [1]],
        "0",
        3,
    ],
)
def test_wrong_indexes_mr3(indexes):
    with pytest.raises((IndexError, TypeError), match="indexes"):
        filled(3, 2, 3).sample_by_index(["x"], indexes)


def test_empty_and_unwritten_mr3():
    memory = filled(3, 2, 1)
    assert memory.sample_by_index(["x"], [])[0][0].shape == (0, 2)
    assert memory.sample_by_index(["x"], [5])[0][0].tolist() == [[0, 0]]


def test_everything_returned_is_a_copy():
    memory = filled(3, 2, 3)
    before = memory.tensors["x"].clone()
    batches = [
        *memory.sample_all(["x"]),
        *memory.sample_all(["x"], 2),
        *memory.sample_all(["x"], 2, 2),
        *memory.sample_by_index(["x"], slice(None)),
        *memory.sample_by_index(["x"], [0, 1]),
        *memory.sample(["x"], 4),
    ]
    for [tensor] in batches:
        tensor.fill_(-1)
    assert torch.equal(memory.tensors["x"], before)


def test_sample_all_is_what_was_written_mr4():
    memory = filled(3, 2, 2)
    memory.add_samples(x=torch.tensor([2, 0]))
    assert memory.sample_all(["x"])[0][0].tolist() == [[0, 0], [0, 1], [1, 0], [1, 1], [2, 0]]
    assert filled(3, 2, 4).sample_all(["x"])[0][0].tolist() == [
        [3, 0],
        [3, 1],
        [1, 0],
        [1, 1],
        [2, 0],
        [2, 1],
    ]


def test_sample_all_by_environment_mr5():
    memory = filled(4, 2, 6)  # the head is at row 2
    [batch] = memory.sample_all(["x"], sequence_length=3)
    assert batch[0].tolist() == [[step, env] for env in range(2) for step in (2, 3, 4, 5)]
    # Runs of 3 + 1 rows in each environment: four runs.
    assert lengths(memory.sample_all(["x"], 2, 3)) == [4, 4]
    assert lengths(memory.sample_all(["x"], 3, 3)) == [4, 3, 1]
    assert lengths(memory.sample_all(["x"], 5, 3)) == [3, 1, 3, 1, 0]


def test_sample_all_by_environment_is_skrls_order_mr5():
    memory = filled(4, 3, 4)
    [[x]] = memory.sample_all(["x"], sequence_length=2)
    assert torch.equal(x, memory.tensors_view["x"][torch.from_numpy(memory.all_sequence_indexes)])


def test_sample_all_of_nothing():
    memory = filled(4, 3, 0)
    assert lengths(memory.sample_all(["x"], 2)) == [0, 0]
    assert lengths(memory.sample_all(["x"], 2, 3)) == [0, 0]
    with pytest.raises(ValueError, match="sequence_length"):
        memory.sample_all(["x"], 1, 0)


def test_sampling_indexes_mr6_mr7():
    memory = filled(4, 2, 6)
    assert memory.get_sampling_indexes() is None
    [[x]] = memory.sample(["x"], 3, sequence_length=2)
    indexes = memory.get_sampling_indexes()
    assert indexes.dtype is torch.int64
    assert indexes.shape == (6,)
    assert torch.equal(x, memory.sample_by_index(["x"], indexes)[0][0])
    memory.sample_all(["x"])
    assert memory.get_sampling_indexes() is indexes
    steps = x.view(3, 2, 2)
    assert (steps[:, 1, 0] == steps[:, 0, 0] + 1).all()
    assert (steps[:, 1, 1] == steps[:, 0, 1]).all()


def test_one_shuffled_epoch_mr8():
    memory = filled(4, 2, 6, replacement=False)
    batches = memory.sample(["x"], len(memory), mini_batches=3)
    assert lengths(batches) == [3, 3, 2]
    rows = torch.cat([batch[0] for batch in batches]).tolist()
    assert sorted(rows) == sorted(memory.tensors_view["x"].tolist())
    assert len(memory.sample(["x"], 100)[0][0]) == 8
    assert len(memory.sample(["x"], 100, sequence_length=3)[0][0]) == 4 * 3
    assert len(set(memory.get_sampling_indexes().view(4, 3)[:, 0].tolist())) == 4


def test_refused_draws_mr9():
    memory = filled(4, 2, 1)
    memory.sample(["x"], 1)
    indexes = memory.get_sampling_indexes()
    with pytest.raises(ValueError, match="batch_size"):
        memory.sample(["x"], -1)
    with pytest.raises(ValueError, match="sequence_length"):
        memory.sample(["x"], 1, sequence_length=0)
    with pytest.raises(ValueError, match="2 samples are stored, sequence_length is 2"):
        memory.sample(["x"], 1, sequence_length=2)
    state = torch.get_rng_state()
    with pytest.raises(KeyError):
        memory.sample(["nope"], 1)
    assert torch.equal(state, torch.get_rng_state())
    assert memory.get_sampling_indexes() is indexes
    for replacement in (True, False):
        empty = filled(4, 2, 0, replacement=replacement)
        with pytest.raises(ValueError, match="0 samples are stored"):
            empty.sample(["x"], 1)
    assert lengths(memory.sample(["x"], 0, 2, 2)) == [0, 0]
    assert memory.get_sampling_indexes().shape == (0,)


@pytest.mark.parametrize("replacement", [True, False])
def test_only_episode_ends_in_the_way_mr9(replacement):
    memory = filled(4, 1, 0, replacement=replacement)
    memory.create_tensor("terminated", 1, torch.bool)
    for step in range(3):
        memory.add_samples(x=torch.tensor([step, 0]), terminated=torch.tensor([True]))
    with pytest.raises(ValueError, match=r"3 samples are stored, sequence_length is 2; episode_ends=\(\)"):
        memory.sample(["x"], 1, sequence_length=2)


@pytest.mark.parametrize("steps", [2, 5])
def test_indexes_are_torchs_mr10(steps):
    memory = filled(3, 2, steps)
    torch.manual_seed(3)
    memory.sample(["x"], 7)
    torch.manual_seed(3)
    assert torch.equal(memory.get_sampling_indexes(), torch.randint(0, len(memory), (7,)))
    memory = filled(3, 2, steps, replacement=False)
    torch.manual_seed(3)
    memory.sample(["x"], 3)
    torch.manual_seed(3)
    assert torch.equal(memory.get_sampling_indexes(), torch.randperm(len(memory))[:3])


@pytest.mark.parametrize("replacement", [True, False])
def test_a_generator_of_its_own_mr10(replacement):
    state = torch.get_rng_state()
    memory = filled(3, 2, 5, generator=torch.Generator().manual_seed(3), replacement=replacement)
    memory.sample(["x"], 4)
    memory.sample(["x"], 2, sequence_length=2)
    assert torch.equal(state, torch.get_rng_state())
    memory = filled(3, 2, 5, generator=torch.Generator().manual_seed(3), replacement=replacement)
    memory.sample(["x"], 4)
    generator = torch.Generator().manual_seed(3)
    draw = (
        torch.randint(0, 6, (4,), generator=generator)
        if replacement
        else torch.randperm(6, generator=generator)[:4]
    )
    assert torch.equal(memory.get_sampling_indexes(), draw)


def test_draws_are_uniform_mr7():
    memory = filled(5, 2, 8, generator=torch.Generator().manual_seed(0))
    memory.sample(["x"], 20_000)
    counts = torch.bincount(memory.get_sampling_indexes(), minlength=10)
    assert counts.min() > 1800
    assert counts.max() < 2200


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_on_cuda():
    memory = hr.memories.RandomMemory(4, 2)
    memory.create_tensor("x", 2, torch.float32)
    memory.create_tensor("terminated", 1, torch.bool)
    for step in range(6):
        memory.add_samples(x=np.full((2, 2), step), terminated=torch.tensor([[step == 4]] * 2, device="cuda"))
    for batches in (
        memory.sample(["x"], 5, 2),
        memory.sample(["x"], 5, 2, 2),
        memory.sample_all(["x"], 2, 2),
    ):
        assert all(batch[0].device == memory.device for batch in batches)
    assert memory.sample_by_index(["x"], memory.get_sampling_indexes())[0][0].shape == (10, 2)
    # Rows hold the steps 4, 5, 2, 3; the episodes end after step 4.
    assert memory.sequence_starts(2).tolist() == [4, 5, 6, 7]
