"""Memories MS1 to MS6, with a list of steps for each environment as the model."""

from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

torch = pytest.importorskip("torch")

import headrace as hr  # noqa: E402


def test_the_window_of_the_page_ms1():
    memory = hr.memories.RandomMemory(4, 1, "cpu")
    memory.create_tensor("x", 1, torch.int64)
    for step in range(6):
        memory.add_samples(x=torch.tensor([step]))
    assert memory.tensors["x"].flatten().tolist() == [4, 5, 2, 3]
    starts = memory.sequence_starts(2)
    assert starts.dtype is torch.int64
    assert memory.sequence_indexes(starts, 2).view(3, 2).tolist() == [[2, 3], [3, 0], [0, 1]]


def test_part_filled_rows_ms2():
    memory = hr.memories.RandomMemory(3, 3, "cpu")
    memory.create_tensor("x", 1)
    memory.add_samples(x=torch.zeros(3, 1))
    memory.add_samples(x=torch.zeros(1))
    memory.add_samples(x=torch.zeros(1))
    assert memory.sequence_starts(2).tolist() == [0, 1]
    assert memory.sequence_starts(3).tolist() == []
    assert memory.sequence_starts(9).tolist() == []


def episodes(
    ends, length, episode_ends=("terminated", "truncated", "dones"), name="terminated", dtype=torch.bool
):
    memory = hr.memories.RandomMemory(len(ends), 1, "cpu", episode_ends=episode_ends)
    memory.create_tensor("other", 1, torch.bool)
    memory.create_tensor(name, 2, dtype)
    for end in ends:
        memory.add_samples(
            **{name: torch.tensor([0, end]).to(dtype), "other": torch.ones(1, dtype=torch.bool)}
        )
    return memory.sequence_starts(length).tolist()


@pytest.mark.parametrize("name", ["terminated", "truncated", "dones"])
@pytest.mark.parametrize("dtype", [torch.bool, torch.float32, torch.int8])
def test_episode_ends_ms3(name, dtype):
    assert episodes([0, 0, 1, 0, 0], 2, name=name, dtype=dtype) == [0, 1, 3]
    assert episodes([0, 0, 1, 0, 0], 3, name=name, dtype=dtype) == [0]
    assert episodes([0, 0, 1, 0, 0], 1, name=name, dtype=dtype) == [0, 1, 2, 3, 4]


def test_which_tensors_end_episodes_ms3():
    assert episodes([0, 0, 1, 0, 0], 2, episode_ends=()) == [0, 1, 2, 3]
    assert episodes([0, 0, 1, 0, 0], 2, episode_ends=["dones"]) == [0, 1, 2, 3]
    assert episodes([0, 0, 1, 0, 0], 2, episode_ends=["over"], name="over") == [0, 1, 3]
    with pytest.raises(TypeError, match="episode_ends"):
        hr.memories.Memory(1, episode_ends="dones")


@pytest.mark.parametrize("replacement", [True, False])
@pytest.mark.parametrize("steps", [3, 4, 6])
@pytest.mark.parametrize("ends", [False, True])
def test_draws_when_all_are_valid_ms4(replacement, steps, ends):
    memory = hr.memories.RandomMemory(4, 2, "cpu", replacement=replacement)
    memory.create_tensor("terminated" if ends else "x", 1, torch.bool)
    for _ in range(steps):
        memory.add_samples(
            **{name: torch.zeros(2, 1, dtype=torch.bool) for name in memory.get_tensor_names()}
        )
    head = memory.memory_index * 2 if memory.filled else 0
    valid = len(memory) - 2 * (2 - 1)
    torch.manual_seed(5)
    memory.sample(memory.get_tensor_names(), 3, sequence_length=2)
    torch.manual_seed(5)
    draw = torch.randint(0, valid, (3,)) if replacement else torch.randperm(valid)[:3]
    assert memory.get_sampling_indexes().view(-1, 2)[:, 0].tolist() == ((head + draw) % 8).tolist()


def test_sequence_indexes_ms5():
    memory = hr.memories.Memory(3, 2, "cpu")
    memory.create_tensor("x", 1)
    memory.add_samples(x=torch.zeros(2, 1))
    assert memory.sequence_starts(1).tolist() == [0, 1]
    assert memory.sequence_indexes([4, 1], 1).tolist() == [4, 1]
    assert memory.sequence_indexes(torch.tensor([4, 1]), 3).tolist() == [4, 0, 2, 1, 3, 5]
    assert memory.sequence_indexes([], 3).tolist() == []
    for call in (lambda: memory.sequence_starts(0), lambda: memory.sequence_indexes([0], 0)):
        with pytest.raises(ValueError, match="sequence_length"):
            call()
    with pytest.raises(IndexError):
        memory.sequence_indexes([6], 2)


@pytest.mark.parametrize("few", [False, True])
def test_rejected_draws_stay_uniform_ms4_ms6(few):
    memory = hr.memories.RandomMemory(400, 1, "cpu", generator=torch.Generator().manual_seed(1))
    memory.create_tensor("dones", 1, torch.bool)
    for step in range(600):
        inside = step % 100 < 3 if few else step % 3 != 2
        memory.add_samples(dones=torch.tensor([not inside]))
    valid = set(memory.sequence_starts(2).tolist())
    memory.sample(["dones"], 100 * len(valid), sequence_length=2)
    counts = torch.bincount(memory.get_sampling_indexes().view(-1, 2)[:, 0], minlength=400)
    assert set(counts.nonzero().flatten().tolist()) <= valid
    assert all(50 < counts[start] < 150 for start in valid)


def test_draws_look_at_no_more_rows_than_they_return_ms6(monkeypatch):
    memory = hr.memories.RandomMemory(100_000, 1, "cpu")
    memory.create_tensor("dones", 1, torch.bool)
    memory.add_samples(dones=torch.zeros(100_000, 1, dtype=torch.bool))
    looked_at = []
    is_end = memory._is_end

    def counted(ends, rows):
        looked_at.append(len(rows))
        return is_end(ends, rows)

    monkeypatch.setattr(memory, "_is_end", counted)
    memory.sample(["dones"], 16, sequence_length=4)
    assert looked_at == [16 * 3]


class Model(RuleBasedStateMachine):
    """Random adds, wraps, resets and loads of the head, against a list of (step, end) for each environment."""

    @initialize(memory_size=st.integers(1, 5), num_envs=st.integers(1, 4), replacement=st.booleans())
    def start(self, memory_size, num_envs, replacement):
        self.memory = hr.memories.RandomMemory(memory_size, num_envs, "cpu", replacement=replacement)
        self.memory.create_tensor("id", 1, torch.int64)
        self.memory.create_tensor("dones", 1, torch.bool)
        self.size, self.envs, self.next_id, self.position = memory_size, num_envs, 0, 0
        self.clear()

    def clear(self):
        self.cells = {}  # flat index -> (id, end), in the order of writing
        self.position = 0

    def put(self, number, ends):
        ids = list(range(self.next_id, self.next_id + number))
        self.next_id += number
        self.memory.add_samples(
            id=torch.tensor(ids).view(-1, 1), dones=torch.tensor(ends, dtype=torch.bool).view(-1, 1)
        )
        for key, end in zip(ids, ends, strict=True):
            self.cells.pop(self.position, None)
            self.cells[self.position] = (key, end)
            self.position = (self.position + 1) % (self.size * self.envs)

    @rule(data=st.data())
    def add(self, data):
        room = self.envs - self.position % self.envs
        number = data.draw(st.integers(1, 12 if self.envs == 1 else room))
        self.put(number, data.draw(st.lists(st.booleans(), min_size=number, max_size=number)))

    @rule()
    def reset(self):
        self.memory.reset()
        self.clear()

    def stored(self):
        """For each environment its samples, oldest first: (flat, id, end)."""
        return [
            [(flat, key, end) for flat, (key, end) in self.cells.items() if flat % self.envs == env]
            for env in range(self.envs)
        ]

    def windows(self, length):
        """Start -> the ids of each valid sequence."""
        found = {}
        for steps in self.stored():
            for start in range(len(steps) - length + 1):
                window = steps[start : start + length]
                if not any(end for _, _, end in window[:-1]):
                    found[window[0][0]] = [key for _, key, _ in window]
        return found

    @invariant()
    def everything_stored_is_there(self):
        assert len(self.memory) == len(self.cells)
        ids = self.memory.sample_all(["id"])[0][0].flatten().tolist()
        assert ids == [self.cells[flat][0] for flat in sorted(self.cells)]

    @rule(length=st.integers(1, 6), parts=st.integers(1, 4))
    def pass_over_everything(self, length, parts):
        batches = self.memory.sample_all(["id"], parts, length)
        if length == 1:
            return
        runs = [
            [key for _, key, _ in steps[start : start + length]]
            for steps in self.stored()
            for start in range(0, len(steps), length)
        ]
        sizes = [len(runs) // parts + (part < len(runs) % parts) for part in range(parts)]
        for [ids], size in zip(batches, sizes, strict=True):
            assert ids.flatten().tolist() == list(chain.from_iterable(runs[:size]))
            runs = runs[size:]

    @rule(length=st.integers(1, 6))
    def starts(self, length):
        windows = self.windows(length)
        starts = self.memory.sequence_starts(length)
        assert sorted(starts.tolist()) == sorted(windows)
        order = list(self.cells)
        assert starts.tolist() == sorted(windows, key=order.index)
        rows = self.memory.sequence_indexes(starts, length).tolist()
        assert [self.cells[flat][0] for flat in rows] == list(
            chain.from_iterable(windows[s] for s in starts.tolist())
        )

    @rule(length=st.integers(1, 5), batch_size=st.integers(1, 12), parts=st.integers(1, 3))
    def sample(self, length, batch_size, parts):
        windows = self.windows(length)
        if not windows:
            with pytest.raises(ValueError, match="stored"):
                self.memory.sample(["id"], batch_size, parts, length)
            return
        batches = self.memory.sample(["id"], batch_size, parts, length)
        number = batch_size if self.memory._replacement else min(batch_size, len(windows))
        sizes = [number // parts + (part < number % parts) for part in range(parts)]
        assert [len(ids) for [ids] in batches] == [size * length for size in sizes]
        drawn = torch.cat([ids for [ids] in batches]).view(-1, length).tolist()
        starts = self.memory.get_sampling_indexes().view(-1, length)[:, 0].tolist()
        assert drawn == [windows[start] for start in starts]
        if not self.memory._replacement:
            assert len(set(starts)) == number


Model.TestCase.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
TestAgainstLists = Model.TestCase


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_positions_are_the_order_of_writing_ms1(data):
    memory_size, num_envs = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 4))
    memory = hr.memories.Memory(memory_size, num_envs, "cpu")
    memory.create_tensor("x", 1)
    order = []
    for flat in range(data.draw(st.integers(0, 30))):
        memory.add_samples(x=torch.zeros(1))
        order = [cell for cell in order if cell != flat % (memory_size * num_envs)] + [
            flat % (memory_size * num_envs)
        ]
    assert memory.sequence_starts(1).tolist() == order
