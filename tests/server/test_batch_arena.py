"""Blocks of the batch arena: how many it keeps for further batches."""

import gc
import os
import time
from contextlib import suppress

import numpy as np
import pytest

import headrace as hr
from headrace.server.client.blocks import MappedBlocks
from headrace.server.serving.batches import batch_arena
from headrace.server.serving.batches.batch_arena import BatchArena
from headrace.system import has_sealed_memory

pytestmark = pytest.mark.skipif(not has_sealed_memory(), reason="needs sealed memory")
NBYTES = 1 << 18


def lent(arena, count):
    """Lends so many batches at a time, which the client then gives back; returns the number of new blocks."""
    numbers = []
    for _ in range(count):
        array = arena.empty((NBYTES,), np.dtype(np.uint8))
        numbers.append(arena.place_of(array)[0])
        arena.lend([numbers[-1]])
        del array
    assert len(set(numbers)) == count
    new = arena.take_new()
    for block in new:
        block.close()
    arena.give_back(numbers)
    return len(new)


@pytest.mark.parametrize("count", [1, 8, 20])
def test_all_blocks_that_were_lent_at_a_time_are_used_again(count):
    """Also those of more requests than a pool of private memory keeps buffers for."""
    arena = BatchArena()
    assert [lent(arena, count) for _ in range(3)] == [count, 0, 0]
    assert arena.take_forgotten() == []


def test_an_arena_of_many_bytes_keeps_no_further_blocks(monkeypatch):
    monkeypatch.setattr(batch_arena, "_KEPT_NBYTES", 10 * NBYTES)
    arena = BatchArena()
    assert [lent(arena, 10), lent(arena, 10)] == [10, 0]
    assert lent(arena, 20) == 10
    assert len(arena.take_forgotten()) == 10
    assert lent(arena, 10) == 0


def test_a_loader_with_many_requests_on_their_way_maps_each_block_once(tmp_path, monkeypatch):
    granted = []
    grant = MappedBlocks.grant

    def counted(blocks, numbers, sizes, descriptors):
        granted.extend(numbers)
        grant(blocks, numbers, sizes, descriptors)

    monkeypatch.setattr(MappedBlocks, "grant", counted)
    table = hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=100)
    with hr.Replay(
        hr.Signature.like({"n": 0, "x": np.zeros(1 << 15, np.float32)}), [table], seed=0
    ) as replay:
        with replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
            for n in range(10):
                writer.append({"n": n, "x": np.full(1 << 15, n, np.float32)})
        with (
            hr.Server({"r": replay}, address=None, unix=tmp_path / "s") as server,
            hr.Client(server.address) as client,
            hr.loaders.Loader(client.replay("r"), "t", 2, prefetch=16) as loader,
        ):
            for _ in range(100):
                batch = next(loader)
                assert (batch["x"] == batch["n"][:, None]).all()
    assert len(granted) < 40


def mapped():
    """Number of blocks that this process maps, as client or as server; each mapping has a descriptor."""
    found = 0
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            found += "headrace-batch" in os.readlink(f"/proc/self/fd/{descriptor}")
    return found


def test_blocks_are_free_as_soon_as_their_connection_has_ended(tmp_path):
    """LP1: a server keeps no memory for a client that is gone until Python looks for cycles."""
    table = hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=9)
    with hr.Replay(hr.Signature.like({"x": np.zeros(NBYTES, np.uint8)}), [table]) as replay:
        with replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
            writer.append({"x": np.ones(NBYTES, np.uint8)})
        gc.collect()
        before = mapped()
        with hr.Server({"r": replay}, address=None, unix=tmp_path / "s") as server:
            gc.disable()
            try:
                with hr.Client(server.address) as client:
                    batches = [client.replay("r").sample("t", 4) for _ in range(3)]
                    assert mapped() > before
                del batches, client  # Or it is the client that still maps them.
                until(lambda: mapped() == before)
            finally:
                gc.enable()


def until(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.002)
