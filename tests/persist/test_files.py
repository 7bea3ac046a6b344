"""Files in pieces: whoever waits does pieces too, and nothing is begun for somebody who has given up."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import CheckpointError
from headrace.persist.checkpoint.files import PIECE, HashedReader, HashedWriter, io_threads, record_of_array


@contextmanager
def busy_threads() -> Iterator[ThreadPoolExecutor]:
    """A pool of one thread, which does something else until the end."""
    free = threading.Event()
    with ThreadPoolExecutor(1) as threads:
        begun = threading.Event()
        busy = threads.submit(lambda: (begun.set(), free.wait(50)))
        assert begun.wait(50)
        try:
            yield threads
        finally:
            free.set()
        assert busy.result()[1], "expected the thread to be busy until the end"


def numbers(nbytes: int) -> np.ndarray:
    return np.random.default_rng(nbytes).integers(0, 256, nbytes, np.uint8)


def written(path: Path, arrays: list[np.ndarray], threads: ThreadPoolExecutor):
    with HashedWriter(path, threads) as file:
        for array in arrays:
            file.write(array)
        return file.record([record_of_array(str(number), array) for number, array in enumerate(arrays)])


def test_the_thread_that_waits_does_the_pieces_that_no_other_has_begun(tmp_path):
    array = numbers(2 * PIECE + 1000)
    found = np.zeros_like(array)
    with busy_threads() as threads:
        record = written(tmp_path / "a", [array], threads)
        with HashedReader(tmp_path, record, threads) as file:
            file.read_into(found)
            file.finish()
    np.testing.assert_array_equal(found, array)
    with io_threads() as threads:
        assert written(tmp_path / "b", [array], threads).xxh3_128 == record.xxh3_128


@settings(max_examples=20, deadline=None)
@given(
    sizes=st.lists(st.sampled_from([1, 7, 64, 4096, PIECE - 1, PIECE, PIECE + 3]), min_size=1, max_size=5),
    more=st.sampled_from([0, 2000]),
    settled=st.sets(st.integers(0, 4)),
)
def test_what_was_written_is_read_however_it_is_cut(tmp_path_factory, sizes, more, settled):
    """As one array or as many, of which more than the system takes at once lie in one piece.

    What is settled may change afterwards.
    """
    folder = tmp_path_factory.mktemp("files")
    arrays = [numbers(size) for size in sizes] + [numbers(5) for _ in range(more)]
    content = np.concatenate(arrays)
    with io_threads() as threads:
        with HashedWriter(folder / "a", threads) as file:
            for number, array in enumerate(arrays):
                file.write(array)
                if number in settled:
                    file.drain()
                    array.fill(0)
            record = file.record([record_of_array(str(number), array) for number, array in enumerate(arrays)])
        assert record.size == len(content)
        assert (folder / "a").read_bytes() == content.tobytes()
        for found in ([np.zeros_like(content)], [np.zeros_like(array) for array in arrays]):
            with HashedReader(folder, record, threads) as reader:
                for array in found:
                    reader.read_into(array)
                reader.finish()
            np.testing.assert_array_equal(np.concatenate(found), content)


def test_a_changed_byte_is_found_in_whichever_piece(tmp_path):
    array = numbers(2 * PIECE + 9)
    for place in (0, PIECE, 2 * PIECE + 8):
        with io_threads() as threads:
            record = written(tmp_path / str(place), [array], threads)
            with open(tmp_path / str(place), "r+b") as file:
                file.seek(place)
                file.write(bytes([array[place] ^ 1]))
            with HashedReader(tmp_path, record, threads) as reader:
                reader.read_into(np.zeros_like(array))
                with pytest.raises(CheckpointError, match="checksum"):
                    reader.finish()


def test_after_an_error_no_more_pieces_are_begun(tmp_path):
    """Ctrl-C while a large checkpoint is read need not wait for the rest of it."""
    array = numbers(3 * PIECE)
    with io_threads() as threads:
        record = written(tmp_path / "a", [array], threads)
    found = np.zeros_like(array)
    begun, free = threading.Event(), threading.Event()

    def read() -> None:
        with ExitStack() as files, io_threads() as threads:
            # More than the pool has threads.
            for _ in range(4):
                threads.submit(lambda: (begun.set(), free.wait(60)))
            files.enter_context(HashedReader(tmp_path, record, threads)).read_into(found)
            # Behind the pieces: when this is given up, they are.
            threads.submit(int).add_done_callback(lambda _: free.set())
            assert begun.wait(60)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read()
    assert not found.any()
