"""One contract over the three places where an arena can live, and what sharing and files add to it."""

import gc
import mmap
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from headrace.spec import ArraySpec, Signature
from headrace.store.block import LaneBlock
from headrace.store.memory.arena import Arena
from headrace.store.memory.arena_layout import ArenaLayout
from headrace.store.store import Store
from headrace.system import reservable_nbytes

NBYTES = 1 << 20
PLACES = ["private", "shared", "file"]


def make(place: str, folder: Path, nbytes: int = NBYTES) -> Arena:
    if place == "private":
        return Arena.private(nbytes)
    return Arena.shared(nbytes) if place == "shared" else Arena.file(folder / "arena", nbytes)


def open_descriptors() -> set[str]:
    gc.collect()  # What other tests have left in circles.
    return {
        target
        for number in os.listdir("/proc/self/fd")
        if (target := _target(number)) and ("headrace" in target or "arena" in target)
    }


def _target(number: str) -> str | None:
    try:
        return f"{number}: {os.readlink(f'/proc/self/fd/{number}')}"
    except OSError:
        return None


@pytest.fixture(params=PLACES)
def arena(request: pytest.FixtureRequest, tmp_path: Path):
    arena = make(request.param, tmp_path)
    yield arena
    arena.close()


def test_arrays_begin_with_zeros_and_keep_what_is_written(arena: Arena):
    one = arena.array(0, (10, 3), np.float32)
    other = arena.array(4096, (5,), np.int64)
    assert not one.any()
    assert not other.any()
    one[:] = 1.5
    other[:] = -7
    assert (arena.array(0, (10, 3), np.float32) == 1.5).all()
    assert (arena.array(4096, (5,), np.int64) == -7).all()
    assert not arena.array(120, (100,), np.uint8).any()


def test_an_array_over_the_end_is_refused(arena: Arena):
    with pytest.raises((TypeError, ValueError)):
        arena.array(NBYTES - 8, (2,), np.int64)


def test_arrays_outlive_the_arena(arena: Arena):
    """The memory is freed with the last array over it, not before."""
    array = arena.array(0, (100,), np.int64)
    part = array[10:20]
    array[:] = 3
    del array
    arena.close()
    arena.close()
    assert (part == 3).all()
    part[:] = 4
    assert (part == 4).all()


def test_sync_changes_nothing(arena: Arena):
    array = arena.array(0, (4,), np.int64)
    array[:] = 5
    arena.sync()
    assert (array == 5).all()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows counts what is reserved")
def test_a_large_reservation_takes_no_memory(arena: Arena, tmp_path: Path):
    """Capacity is address space: a reservation beyond the memory there is can be made and written at its end."""
    nbytes = reservable_nbytes() // 4096 * 4096
    place = "private" if not arena.is_shareable else "shared"
    large = make(place, tmp_path, nbytes)
    array = large.array(nbytes - 4096, (512,), np.int64)
    array[:] = 1
    assert array.sum() == 512
    large.close()


@pytest.mark.parametrize("place", PLACES)
def test_who_can_be_shared(place: str, tmp_path: Path):
    arena = make(place, tmp_path)
    assert arena.is_shareable == (place != "private")
    if place == "private":
        with pytest.raises(ValueError, match="private memory has no descriptor"):
            _ = arena.descriptor
    else:
        assert arena.descriptor >= 0
    arena.close()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has memory files")
def test_a_system_that_counts_what_is_reserved_gets_a_memory_file(monkeypatch: pytest.MonkeyPatch):
    """`vm.overcommit_memory=2` refuses private memory that would never be used."""
    real = mmap.mmap

    def strict(descriptor, nbytes, **named):
        if descriptor == -1:
            raise OSError(12, "Cannot allocate memory")
        return real(descriptor, nbytes, **named)

    monkeypatch.setattr(mmap, "mmap", strict)
    arena = Arena.private(NBYTES)
    assert arena.is_shareable
    arena.array(0, (4,), np.int64)[:] = 5
    arena.close()


@pytest.mark.parametrize("place", PLACES)
def test_a_store_lives_in_each_place(place: str, tmp_path: Path):
    """The code above does not know which place it is."""
    signature = Signature({"x": ArraySpec(2, np.float32)})
    store = Store(signature, 100, make_arena=lambda nbytes: make(place, tmp_path, nbytes))
    block = LaneBlock(store, 1, 10)
    for step in range(20):
        block.make_room()
        store.columns["x"][block.row] = step
        block.commit()
    assert store.columns["x"][block.last].tolist() == [19, 19]
    store.close()


@pytest.mark.parametrize("place", PLACES)
def test_descriptors_are_closed_and_nothing_is_left(place: str, tmp_path: Path, named_memory):
    before, shared_memory = open_descriptors(), named_memory()
    arena = make(place, tmp_path)
    array = arena.array(0, (10,), np.uint8)
    assert named_memory() == shared_memory  # An arena has no name.
    arena.close()
    # The mapping keeps a copy of the descriptor until the last array over it is garbage.
    del array, arena
    assert open_descriptors() == before


@pytest.mark.parametrize("place", PLACES)
def test_an_arena_that_is_forgotten_closes_itself(place: str, tmp_path: Path):
    before = open_descriptors()
    make(place, tmp_path)
    assert open_descriptors() == before


# ---- shared by descriptor --------------------------------------------------------------------------------------------


CHILD = """
import socket, sys
import numpy as np
from headrace.store.memory.arena import Arena

with socket.socket(fileno=int(sys.argv[1])) as connection:
    message, descriptors, _, _ = socket.recv_fds(connection, 16, 1)
    arena = Arena.attach(descriptors[0], int(message))
    array = arena.array(4096, (8,), np.int64)
    assert array.tolist() == list(range(8))
    array += 10
    connection.sendall(b"w")
    connection.recv(1)
    assert array.tolist() == [-1, *range(11, 18)]
    connection.sendall(b"s")
"""


@pytest.mark.parametrize("place", ["shared", "file"])
def test_a_spawned_child_sees_and_writes_the_same_rows(place: str, tmp_path: Path):
    """The descriptor goes over a socket; what one process writes the other sees at once."""
    before = open_descriptors()
    arena = make(place, tmp_path)
    array = arena.array(4096, (8,), np.int64)
    array[:] = np.arange(8)
    here, there = socket.socketpair()
    here.settimeout(20)
    with here, there:
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(there.fileno())], pass_fds=[there.fileno()], close_fds=True
        )
        there.close()
        try:
            socket.send_fds(here, [str(NBYTES).encode()], [arena.descriptor])
            assert here.recv(1) == b"w"
            assert array.tolist() == list(range(10, 18))
            array[0] = -1
            here.sendall(b"l")
            assert here.recv(1) == b"s"
        finally:
            code = child.wait(20)
    assert code == 0
    del array
    arena.close()
    del arena
    assert open_descriptors() == before


# ---- on disk ---------------------------------------------------------------------------------------------------------


def test_a_file_keeps_what_was_written(tmp_path: Path):
    arena = make("file", tmp_path)
    arena.array(4096, (8,), np.int64)[:] = np.arange(8)
    arena.sync()
    arena.close()
    again = make("file", tmp_path)
    assert again.array(4096, (8,), np.int64).tolist() == list(range(8))
    again.close()


def test_a_file_grows_and_never_shrinks(tmp_path: Path):
    make("file", tmp_path, 8192).array(0, (8,), np.int64)[:] = 3
    larger = make("file", tmp_path, 65536)
    assert (tmp_path / "arena").stat().st_size == 65536
    assert (larger.array(0, (8,), np.int64) == 3).all()
    make("file", tmp_path, 8192).close()
    assert (tmp_path / "arena").stat().st_size == 65536
    larger.close()


def test_a_file_is_sparse_and_its_owner_s_alone(tmp_path: Path):
    arena = make("file", tmp_path, 1 << 30)
    stat = (tmp_path / "arena").stat()
    assert stat.st_blocks * 512 < 1 << 20
    assert stat.st_mode & 0o077 == 0
    arena.close()


# ---- layout ----------------------------------------------------------------------------------------------------------


def test_layout_places_arrays_apart_and_the_same_everywhere():
    layout, again = ArenaLayout(), ArenaLayout()
    for each in (layout, again):
        each.add("a", (3, 5), np.float32)
        each.add("b", (0,), np.int64)
        each.add("c", (5000,), np.uint8)
        each.add("d", (1,), np.bool_)
    assert layout.places == again.places
    assert all(offset % 4096 == 0 for offset, _, _ in layout.places.values())
    arrays = layout.arrays(Arena.private(layout.nbytes))
    for number, array in enumerate(arrays.values()):
        array[...] = number
    for number, array in enumerate(arrays.values()):
        assert (array == array.dtype.type(number)).all()
    assert {name: array.shape for name, array in arrays.items()} == {
        "a": (3, 5),
        "b": (0,),
        "c": (5000,),
        "d": (1,),
    }
