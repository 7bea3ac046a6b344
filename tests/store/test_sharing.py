"""Private memory that becomes shared: the same bytes at the same addresses, at every moment."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import headrace as hr
from headrace.replay.public import core_of
from headrace.spec import ArraySpec, Signature
from headrace.store.block import LaneBlock
from headrace.store.memory import arena as arena_module
from headrace.store.memory.arena import Arena
from headrace.store.store import Store
from headrace.tables.description.selectors import Fifo, Uniform
from headrace.testing.forks import in_forked_child

LARGE = 64 << 20


def everything(arena):
    return lambda: np.array([[0, arena.nbytes]])


def filled(monkeypatch, at_once=1 << 20):
    """An arena with something here and there, which is shared in several pieces."""
    monkeypatch.setattr(arena_module, "_SHARED_AT_ONCE", at_once)
    arena = Arena.private_sparse(LARGE)
    array = arena.array(0, (LARGE // 8,), np.int64)
    random = np.random.default_rng(0)
    array[:400_000] = random.integers(1, 100, 400_000)
    array[random.integers(0, len(array), 50)] = 7
    array[-1] = 9
    return arena, array


def test_all_bytes_stay_where_they_are_and_another_process_sees_them(monkeypatch):
    arena, array = filled(monkeypatch)
    before, address = array.copy(), array.__array_interface__["data"][0]
    assert not arena.is_shareable
    arena.share(threading.RLock(), everything(arena))
    assert arena.is_shareable
    np.testing.assert_array_equal(array, before)
    assert array.__array_interface__["data"][0] == address
    attached = Arena.attach(os.dup(arena.descriptor), arena.nbytes)
    there = attached.array(0, array.shape, np.int64)
    np.testing.assert_array_equal(there, before)
    array[5], there[6] = -5, -6
    assert (there[5], array[6]) == (-5, -6)
    descriptor = arena.descriptor
    arena.share(threading.RLock(), everything(arena))
    assert arena.descriptor == descriptor, "what is shared is left as it is"
    attached.close()
    arena.close()


def test_a_memory_file_takes_no_room_for_what_was_never_written(monkeypatch):
    arena, array = filled(monkeypatch)
    written = np.count_nonzero(array.reshape(-1, 512).any(axis=1))
    arena.share(threading.RLock(), everything(arena))
    assert os.fstat(arena.descriptor).st_blocks * 512 == written * 4096
    arena.close()


@pytest.mark.parametrize("fails_at", range(4))
def test_no_room_leaves_the_arena_as_good_as_before(monkeypatch, fails_at):
    arena, array = filled(monkeypatch)
    before = array.copy()
    left = [fails_at]
    original = Arena._map_over

    def fail(self, *arguments):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(12, "Cannot allocate memory")
        original(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(Arena, "_map_over", fail)
        with pytest.raises(OSError, match="Cannot"):
            arena.share(threading.RLock(), everything(arena))
    np.testing.assert_array_equal(array, before)
    array[3] = 33
    arena.share(threading.RLock(), everything(arena))
    assert array[3] == 33
    np.testing.assert_array_equal(array[4:], before[4:])
    arena.close()


@pytest.mark.parametrize("fails_at", range(3))
def test_what_was_cleared_after_a_piece_failed_stays_cleared(monkeypatch, fails_at):
    """The next try copies what is there then, zeros too, and not what the file has of the first."""
    arena, array = filled(monkeypatch)
    left, original = [fails_at], Arena._map_over

    def fail(self, *arguments):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(12, "Cannot allocate memory")
        original(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(Arena, "_map_over", fail)
        with pytest.raises(OSError, match="Cannot"):
            arena.share(threading.RLock(), everything(arena))
    array[:] = 0
    arena.share(threading.RLock(), everything(arena))
    assert not array.any()
    arena.close()


def test_a_file_that_cannot_be_made_large_enough_is_not_used(monkeypatch):
    """Memory that is mapped beyond the end of its file would end the process when it is touched."""
    arena, array = filled(monkeypatch)
    before = array.copy()

    def refuse(descriptor, nbytes):
        raise OSError(27, "File too large")

    with monkeypatch.context() as patched:
        patched.setattr(os, "ftruncate", refuse)
        with pytest.raises(OSError, match="too large"):
            arena.share(threading.RLock(), everything(arena))
    arena.share(threading.RLock(), everything(arena))
    assert os.fstat(arena.descriptor).st_size == arena.nbytes
    np.testing.assert_array_equal(array, before)
    arena.close()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has memory files")
def test_a_child_forked_half_way_writes_into_memory_of_its_own(monkeypatch):
    arena, array = filled(monkeypatch)
    first = int(array[0])
    with monkeypatch.context() as patched:
        patched.setattr(arena_module, "_SHARED_AT_ONCE", 1 << 20)
        arena._share_piece(np.array([[0, arena.nbytes]]))
    assert 0 < arena.moved < arena.nbytes

    def write():
        arena.make_private()
        array[0] = array[300_000] = -1
        arena.share(threading.RLock(), everything(arena))
        return [int(array[0]), int(array[300_000])]

    assert in_forked_child(write) == [-1, -1]
    assert array[0] == first
    assert array[300_000] > 0
    arena.share(threading.RLock(), everything(arena))
    assert array[0] == first
    arena.close()


def test_what_a_child_shares_is_a_file_of_its_own():
    """Worker processes of a forked child write into its rows, not into its parent's (loaders LP4)."""
    arena = Arena.private_sparse(LARGE)
    array = arena.array(0, (LARGE // 8,), np.int64)
    array[:1000] = 1
    arena.share(threading.RLock(), everything(arena))

    def write():
        arena.make_private()
        array[0] = 2
        arena.share(threading.RLock(), everything(arena))
        attached = Arena.attach(os.dup(arena.descriptor), arena.nbytes)
        attached.array(0, array.shape, np.int64)[1] = 3
        return array[:3].tolist()

    assert in_forked_child(write) == [2, 3, 1]
    assert array[:3].tolist() == [1, 1, 1]
    arena.close()


def test_a_store_is_read_and_written_while_it_becomes_shared(monkeypatch):
    """A writer goes on in each pause between two pieces; nothing that it wrote is lost."""
    monkeypatch.setattr(arena_module, "_SHARED_AT_ONCE", 1 << 16)
    store = Store(Signature({"x": ArraySpec(100, np.int64)}), make_arena=Arena.private)
    block = LaneBlock(store, 1, 10**6)
    steps = []

    def step():
        block.make_room()
        store.columns["x"][block.row] = len(steps)
        steps.append(block.row)
        block.commit()

    for _ in range(3000):
        step()
    original = Arena._share_piece

    def between(self, written):
        original(self, written)
        for _ in range(10):
            step()

    monkeypatch.setattr(Arena, "_share_piece", between)
    descriptor = store.share()
    monkeypatch.undo()
    assert len(steps) > 3300
    attached = Arena.attach(os.dup(descriptor), store.arena.nbytes)
    offset, shape, dtype = store.layout.places["column:x"]
    for column in (store.columns["x"], attached.array(offset, shape, dtype)):
        assert (column[steps] == np.arange(len(steps))[:, None]).all()
    attached.close()
    store.close()


def test_a_peer_that_overwrites_all_that_it_maps_changes_only_values():
    """The page table, step words, links, episodes and versions lie in memory that no peer has."""
    signature = hr.Signature.like({"x": np.zeros(40, np.float32), "reward": np.float32(0)})
    table = hr.Table("t", sampler=Uniform(), remover=Fifo(), max_size=150)
    with hr.Replay(signature, [table], capacity=400, seed=0) as replay:
        store = core_of(replay).store
        writer = replay.writer(lanes=2, items=[hr.ItemRule("t", 3)])

        def fill(episodes):
            for _ in range(episodes):
                for _ in range(7):
                    writer.append({"x": np.ones((2, 40), np.float32), "reward": np.ones(2, np.float32)})
                writer.end_episode()

        fill(20)
        descriptor = os.dup(store.share())
        before = {name: array.copy() for name, array in store.index_layout.arrays(store.index).items()}
        statistics = store.statistics(), replay.table("t").distribution()
        peer = (
            "import mmap, os, sys\n"
            "number = int(sys.argv[1])\n"
            "nbytes = os.fstat(number).st_size\n"
            "memory = mmap.mmap(number, nbytes)\n"
            "for begin in range(0, nbytes, 1 << 16):\n"
            "    memory[begin : begin + (1 << 16)] = b'\\xab' * min(1 << 16, nbytes - begin)\n"
        )
        subprocess.run(
            [sys.executable, "-c", peer, str(descriptor)], check=True, pass_fds=[descriptor], timeout=60
        )
        os.close(descriptor)
        assert (store.records.view(np.uint8) == 0xAB).all()
        for name, array in store.index_layout.arrays(store.index).items():
            np.testing.assert_array_equal(array, before[name], name)
        assert (store.statistics(), replay.table("t").distribution()) == statistics
        sample = replay.sample("t", 32)
        assert sample.data["x"].shape == (32, 3, 40)
        fill(60)
        assert replay.sample("t", 32).data["x"].shape == (32, 3, 40)
        writer.close()
        assert replay.statistics().tables["t"].size == 150


def test_a_worker_process_writes_into_a_loaded_replay(tmp_path):
    from functools import partial

    from headrace.testing import CounterEnv

    make_env = partial(CounterEnv, 5)
    table = hr.Table("t", sampler=Fifo(), remover=Fifo(), max_size=200)
    with hr.Replay(hr.collectors.signature(make_env), [table]) as replay:
        with hr.Collector(
            make_env, frames_per_batch=40, total_frames=40, replay_buffer=replay, items=[hr.ItemRule("t", 1)]
        ) as collector:
            list(collector)
        path = replay.save(tmp_path)
    with hr.Replay.load(path) as loaded:
        with hr.AsyncCollector(
            make_env, frames_per_batch=8, total_frames=40, replay_buffer=loaded, items=[hr.ItemRule("t", 1)]
        ) as collector:
            assert sum(batch.frames for batch in collector) == 40
        assert core_of(loaded).store.arena.is_shareable
        assert len(loaded.table("t")) == 80
        assert loaded.sample("t", 80).info.times_sampled.tolist() == list(range(1, 81))
