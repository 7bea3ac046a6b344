"""Memories MF1 to MF10: files."""

import os
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

import headrace as hr  # noqa: E402

FORMATS = ("pt", "npz", "csv")


def make(memory_size=3, num_envs=2, steps=0):
    memory = hr.memories.RandomMemory(memory_size, num_envs, "cpu")
    memory.create_tensor("image", (2, 3), torch.uint8, keep_dimensions=True)
    memory.create_tensor("rewards", 1, torch.float32)
    memory.create_tensor("done", 1, torch.bool)
    for step in range(steps):
        add(memory, step)
    return memory


def add(memory, step, num_envs=None):
    num_envs = num_envs or memory.num_envs
    ids = torch.tensor([[10 * step + env] for env in range(num_envs)])
    memory.add_samples(
        image=(ids % 256).to(torch.uint8).view(-1, 1, 1).expand(-1, 2, 3), rewards=ids / 3, done=ids % 3 == 0
    )


def blank(memory_size, num_envs=2):
    return hr.memories.RandomMemory(memory_size, num_envs, "cpu")


def samples_by_environment(memory, name="rewards"):
    cells = memory.sequence_starts(1).tolist()
    return [
        [memory.tensors_view[name][cell].tolist() for cell in cells if cell % memory.num_envs == env]
        for env in range(memory.num_envs)
    ]


@pytest.mark.parametrize("suffix", FORMATS)
def test_where_files_go_mf1(suffix, tmp_path, monkeypatch):
    memory = make(steps=2)
    paths = [memory.save(tmp_path / "a" / "b", suffix), memory.save(str(tmp_path / "a" / "b"), suffix)]
    pattern = rf"\d\d-\d\d-\d\d_\d\d-\d\d-\d\d-\d{{6}}_memory_\w+\.{suffix}"
    for path in paths:
        assert path.parent == tmp_path / "a" / "b" / "memories"
        assert re.fullmatch(pattern, path.name)
    assert paths[0] != paths[1]
    memory.export_directory = str(tmp_path / "c")
    assert memory.save(format=suffix).parent == tmp_path / "c" / "memories"
    monkeypatch.chdir(tmp_path)
    memory.export_directory = ""
    assert memory.save(format=suffix).resolve().parent == tmp_path / "memories"


def test_the_other_spelling_of_npz(tmp_path):
    assert make().save(tmp_path, "np").suffix == ".npz"


def test_unknown_format_mf2(tmp_path):
    with pytest.raises(ValueError, match="json"):
        make().save(tmp_path, "json")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", FORMATS)
def test_whole_or_not_at_all_mf2(suffix, tmp_path, monkeypatch):
    def fail(descriptor):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        make(steps=2).save(tmp_path, suffix)
    assert list((tmp_path / "memories").iterdir()) == []


def test_what_pt_and_npz_hold_mf3(tmp_path):
    memory = make(3, 2, steps=4)
    tensors = torch.load(memory.save(tmp_path, "pt"), weights_only=True)
    with np.load(memory.save(tmp_path, "npz")) as archive:
        arrays = {name: archive[name] for name in archive.files}
    assert list(tensors) == list(arrays) == ["done", "image", "rewards", "__headrace__"]
    for name in memory.get_tensor_names():
        assert torch.equal(tensors[name], memory.tensors[name])
        assert np.array_equal(arrays[name], memory.tensors[name].numpy())
    assert arrays["__headrace__"].dtype == np.int64
    assert tensors["__headrace__"].tolist() == arrays["__headrace__"].tolist() == [1, 3, 2, 1, 0, 1]


def test_npz_cannot_hold_bfloat16_mf3(tmp_path):
    memory = make()
    memory.create_tensor("half", 1, torch.bfloat16)
    with pytest.raises(ValueError, match="half.*bfloat16.*pt"):
        memory.save(tmp_path, "npz")
    assert list(tmp_path.iterdir()) == []
    memory.load(memory.save(tmp_path, "pt"))


def test_the_text_of_csv_mf4(tmp_path):
    memory = hr.memories.Memory(3, 2, "cpu")
    memory.create_tensor("rewards", 1, torch.float32)
    memory.create_tensor("done", 1, torch.bool)
    for rewards, done in (([0.25, -0.5], [False, False]), ([1.25, -1.5], [False, True])):
        memory.add_samples(rewards=torch.tensor(rewards).view(2, 1), done=torch.tensor(done).view(2, 1))
    text = memory.save(tmp_path, "csv").read_bytes()
    assert text == b"done.0,rewards.0\r\nFalse,0.25\r\nFalse,-0.5\r\nFalse,1.25\r\nTrue,-1.5\r\n"


def test_csv_of_kept_dimensions_and_special_floats_mf4(tmp_path):
    memory = hr.memories.Memory(2, 1, "cpu")
    memory.create_tensor("x", (2, 2), torch.float64, keep_dimensions=True)
    memory.create_tensor("scalar", (), torch.int64, keep_dimensions=True)
    memory.add_samples(x=np.array([[0.1, np.nan], [np.inf, -np.inf]]), scalar=torch.tensor(-(2**62)))
    lines = memory.save(tmp_path, "csv").read_text().splitlines()
    assert lines == ["scalar,x.0.0,x.0.1,x.1.0,x.1.1", "-4611686018427387904,0.1,nan,inf,-inf"]


def test_csv_is_oldest_first_mf4(tmp_path):
    memory = make(3, 2, steps=4)
    add(memory, 4, num_envs=1)
    lines = memory.save(tmp_path, "csv").read_text().splitlines()[1:]
    column = [round(float(line.split(",")[-1]) * 3) for line in lines]
    assert column[0::2] == [20, 30, 40]
    assert column[1::2] == [11, 21, 31]


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("steps", [0, 2, 3, 7])
@pytest.mark.parametrize("extra", [0, 1])
def test_round_trip_mf6(suffix, steps, extra, tmp_path):
    memory = make(3, 2, steps)
    if extra:
        add(memory, steps, num_envs=1)
    path = memory.save(tmp_path, suffix)
    copy = make(3, 2, steps=5)
    tensors = dict(copy.tensors)
    copy.sample(["done"], 1)
    copy.load(str(path) if extra else path)
    assert all(copy.tensors[name] is tensor for name, tensor in tensors.items())
    assert copy.get_sampling_indexes() is None
    assert len(copy) == len(memory)
    for name in memory.get_tensor_names():
        assert samples_by_environment(copy, name) == samples_by_environment(memory, name)
    if suffix == "csv":
        expected = (0, 0, True) if memory.filled else (steps, extra, False)
        assert (copy.memory_index, copy.env_index, copy.filled) == expected
        return
    assert (copy.memory_index, copy.env_index, copy.filled) == (
        memory.memory_index,
        memory.env_index,
        memory.filled,
    )
    for each in (memory, copy):
        add(each, 50, num_envs=1)
        torch.manual_seed(1)
        each.sample(["rewards"], 4)
    assert torch.equal(memory.get_sampling_indexes(), copy.get_sampling_indexes())
    assert torch.equal(memory.tensors["image"], copy.tensors["image"])
    assert torch.equal(memory.tensors["rewards"].nan_to_num(-1), copy.tensors["rewards"].nan_to_num(-1))


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_memory_without_tensors_loads_any_file_mf7(suffix, tmp_path):
    memory = make(3, 2, steps=4)
    memory.create_tensor("whole", 1, torch.int64)
    memory.create_tensor("wave", 1, torch.complex64)
    path = memory.save(tmp_path, suffix)
    copy = blank(3)
    copy.load(path)
    assert copy.get_tensor_names() == memory.get_tensor_names()
    assert copy._tensor_image is copy.tensors["image"]
    for name in ("image", "rewards", "done", "whole"):
        assert copy.tensors[name].shape == memory.tensors[name].shape
        assert samples_by_environment(copy, name) == samples_by_environment(memory, name)
    dtypes = {name: copy.tensors[name].dtype for name in copy.get_tensor_names()}
    expected = {name: memory.tensors[name].dtype for name in memory.get_tensor_names()}
    assert dtypes == (expected if suffix != "csv" else expected | {"image": torch.int64})


def test_a_csv_without_rows_mf7(tmp_path):
    copy = blank(3)
    copy.load(make().save(tmp_path, "csv"))
    assert {tensor.dtype for tensor in copy.tensors.values()} == {torch.get_default_dtype()}
    make().load(make().save(tmp_path, "csv"))


def test_suffixes_and_missing_files_mf5(tmp_path):
    other = tmp_path / "memory.txt"
    other.write_text("")
    with pytest.raises(ValueError, match="memory.txt"):
        make().load(other)
    for suffix in FORMATS:
        with pytest.raises(FileNotFoundError):
            make().load(tmp_path / f"nothing.{suffix}")


class Evil:
    def __reduce__(self):
        return (os.system, ("touch harmed",))


@pytest.mark.parametrize("suffix", ["pt", "npz"])
def test_no_pickled_objects_mf5(suffix, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / f"evil.{suffix}"
    if suffix == "pt":
        torch.save({"x": Evil()}, path)
    else:
        np.savez(path, x=np.array([Evil()], object))
    with pytest.raises(ValueError, match="evil"):
        blank(3).load(path)
    assert not Path("harmed").exists()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.pt", b"nonsense"),
        ("a.pt", pickle.dumps({"x": 1})),
        ("a.npz", b"nonsense"),
        ("a.csv", b"x.0,x.2\r\n1,2\r\n"),
        ("a.csv", b"x.0,x.1\r\n1\r\n"),
        ("a.csv", b"x.0\r\nhello\r\n"),
        ("a.csv", b"x.0\r\n99999999999999999999999\r\n"),
        ("a.csv", b"x.0,y.0,x.1\r\n1,2,3\r\n"),
        ("a.csv", b"x.0\r\nTrue\r\n1\r\n"),
    ],
)
def test_damaged_files_change_nothing_mf8(name, content, tmp_path):
    path = tmp_path / name
    path.write_bytes(content)
    memory = blank(3)
    with pytest.raises(ValueError, match=name):
        memory.load(path)
    assert memory.get_tensor_names() == ()


@pytest.mark.parametrize(
    "head", [[2, 3, 2, 0, 0, 0], [1, 4, 2, 0, 0, 0], [1, 3, 2, 3, 0, 0], [1, 3, 2, 0, 0, 2], [1, 3, 2]]
)
def test_wrong_headers_are_refused_mf8(head, tmp_path):
    torch.save({"x": torch.zeros(3, 2, 1), "__headrace__": torch.tensor(head)}, tmp_path / "a.pt")
    memory = blank(3)
    with pytest.raises(ValueError, match=r"a\.pt"):
        memory.load(tmp_path / "a.pt")
    assert memory.get_tensor_names() == ()


@pytest.mark.parametrize("suffix", FORMATS)
def test_refused_loads_change_nothing_mf8(suffix, tmp_path):
    def refused(memory, error, match):
        add(memory, 1)
        before = {name: tensor.clone() for name, tensor in memory.tensors.items()}
        head = (memory.memory_index, memory.env_index, memory.filled)
        with pytest.raises(error, match=match):
            memory.load(path)
        assert memory.tensors.keys() == before.keys()
        for name, tensor in before.items():
            assert torch.equal(memory.tensors[name].nan_to_num(-1), tensor.nan_to_num(-1))
        assert (memory.memory_index, memory.env_index, memory.filled) == head

    path = make(3, 2, steps=2).save(tmp_path, suffix)
    more = make()
    more.create_tensor("extra", 1)
    refused(more, KeyError, "extra")
    for size, dtype, match in (
        (2, torch.float32, "rewards: expected size"),
        (1, torch.int32, "rewards: .*int32"),
    ):
        other = hr.memories.RandomMemory(3, 2, "cpu")
        other.create_tensor("rewards", size, dtype)
        other.create_tensor("done", 1, torch.bool)
        other.create_tensor("image", (2, 3), torch.uint8, keep_dimensions=True)
        other.add_samples(done=torch.ones(2, 1, dtype=torch.bool))
        with pytest.raises(ValueError, match=match):
            other.load(path)
        assert len(other) == 2
        assert other.tensors["done"][0].all()
    if suffix != "csv":  # which does not say how many environments there were
        refused(make(3, 3), ValueError, "num_envs")


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 5), st.integers(0, 24), st.sampled_from(FORMATS))
def test_another_memory_size_mf9(tmp_path_factory, old_size, num_envs, new_size, adds, suffix):
    memory = hr.memories.Memory(old_size, num_envs, "cpu")
    memory.create_tensor("x", 1, torch.int64)
    for value in range(adds):
        memory.add_samples(x=torch.tensor([value]))
    copy = hr.memories.Memory(new_size, num_envs, "cpu")
    copy.create_tensor("x", 1, torch.float64)
    copy.set_tensor_by_name("x", torch.tensor(-1.0))
    copy.load(memory.save(tmp_path_factory.mktemp("memory"), suffix))
    kept = [samples[-new_size:] for samples in samples_by_environment(memory, "x")]
    assert samples_by_environment(copy, "x") == kept
    if new_size != old_size:  # the oldest in row 0, and what is not written is empty
        for env, samples in enumerate(kept):
            column = copy.tensors["x"][:, env]
            assert column[: len(samples)].tolist() == samples
            assert column[len(samples) :].isnan().all()


@pytest.mark.parametrize("suffix", ["pt", "npz"])
def test_files_of_skrl_mf10(suffix, tmp_path):
    def write(**tensors):
        path = tmp_path / f"skrl.{suffix}"
        if suffix == "pt":
            torch.save(tensors, path)
        else:
            np.savez(path, **{name: tensor.numpy() for name, tensor in tensors.items()})
        memory = blank(3)
        memory.load(path)
        return len(memory), memory.memory_index, memory.env_index, memory.filled

    nan = float("nan")
    states = torch.full((3, 2, 2), nan)
    actions = torch.zeros(3, 2, 1, dtype=torch.int64)
    assert write(states=states, actions=actions) == (0, 0, 0, False)
    states[0] = 1
    states[1, 0, 1] = 1
    assert write(states=states, actions=actions) == (3, 1, 1, False)
    rewards = torch.full((3, 2, 1), nan)
    rewards[1, 1] = 0
    assert write(states=states, rewards=rewards) == (4, 2, 0, False)
    states[2, 1] = 1
    assert write(states=states, actions=actions) == (6, 0, 0, True)
    assert write(actions=actions) == (6, 0, 0, True)


@pytest.mark.parametrize("suffix", ["pt", "npz", "csv"])
def test_skrl_reads_and_writes_the_same_files_mf3_mf4_mf10(suffix, tmp_path):
    skrl_memories = pytest.importorskip("skrl.memories.torch")
    ours, theirs = make(3, 2), skrl_memories.RandomMemory(memory_size=3, num_envs=2, device="cpu")
    for name, tensor in ours.tensors.items():
        if name != "image":
            theirs.create_tensor(name, size=1, dtype=tensor.dtype)
    for step in range(2):
        ids = torch.tensor([[10 * step], [10 * step + 1]])
        for memory in (ours, theirs):
            memory.add_samples(rewards=ids / 3, done=ids % 3 == 0)
    theirs.save(str(tmp_path / "theirs"), format=suffix)
    [path] = (tmp_path / "theirs" / "memories").iterdir()
    copy = blank(3)
    copy.load(path)
    assert len(copy) == 4
    assert samples_by_environment(copy) == samples_by_environment(ours)
    plain = blank(3)
    for name in ("rewards", "done"):
        plain.create_tensor(name, 1, ours.tensors[name].dtype)
    for step in range(2):
        ids = torch.tensor([[10 * step], [10 * step + 1]])
        plain.add_samples(rewards=ids / 3, done=ids % 3 == 0)
    saved = plain.save(tmp_path / "ours", suffix)
    if suffix == "csv":
        assert saved.read_bytes() == path.read_bytes()
    else:
        theirs.load(str(saved))
        assert torch.equal(theirs._tensor_rewards.nan_to_num(-1), plain.tensors["rewards"].nan_to_num(-1))
