"""Headrace on systems that lack what Linux has: one process does everything, and the rest says what it needs."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace import system
from headrace.persist.checkpoint.folders import new_folder
from headrace.server.queue_core import QueueCore
from headrace.store.layout import reserved_rows

PROGRAM = Path(__file__).with_name("other_system.py")


@pytest.mark.parametrize("name", ["darwin", "win32"])
@pytest.mark.parametrize("part", ["imports", "uses", "torch", "refusals"])
@pytest.mark.timeout(180)
def test_a_process_of_another_system(name, part, tmp_path):
    folder, temporary = tmp_path / "files", tmp_path / "temporary"
    folder.mkdir()
    temporary.mkdir()
    done = subprocess.run(
        [sys.executable, "-W", "error", str(PROGRAM), name, part, str(folder)],
        check=False,
        capture_output=True,
        text=True,
        timeout=150,
        env=os.environ | {"TMPDIR": str(temporary), "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=tmp_path,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
    assert list(temporary.iterdir()) == []


# ---- what the system tells -----------------------------------------------------------------------------------------


class MemoryStatus(ctypes.Structure):
    """MEMORYSTATUSEX, as Microsoft writes it down."""

    _fields_ = (
        ("dwLength", ctypes.c_uint32),
        ("dwMemoryLoad", ctypes.c_uint32),
        *((name, ctypes.c_uint64) for name in ("ullTotalPhys", "ullAvailPhys", "ullTotalPageFile")),
        *((name, ctypes.c_uint64) for name in ("ullAvailPageFile", "ullTotalVirtual", "ullAvailVirtual")),
        ("ullAvailExtendedVirtual", ctypes.c_uint64),
    )


class Windows:
    """A machine of 16 GiB, of which the system still grants `grants`."""

    def __init__(self, grants):
        self.kernel32 = self
        self.grants = grants

    def GlobalMemoryStatusEx(self, place):
        status = ctypes.cast(place, ctypes.POINTER(MemoryStatus)).contents
        if status.dwLength != ctypes.sizeof(MemoryStatus):
            return 0
        status.ullTotalPhys, status.ullAvailPageFile = 16 << 30, self.grants
        return 1


@pytest.mark.parametrize(("grants", "reserved"), [(40 << 30, 4 << 30), (8 << 30, 2 << 30)])
def test_windows_counts_what_is_reserved(monkeypatch, grants, reserved):
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(ctypes, "windll", Windows(grants), raising=False)
    assert system.reservable_nbytes() == reserved
    assert reserved_rows(1000) == reserved // 1024


@pytest.mark.parametrize("name", ["darwin", "win32", "linux"])
def test_a_system_that_does_not_tell_its_memory(monkeypatch, name):
    monkeypatch.setattr(sys, "platform", name)
    monkeypatch.delattr(os, "sysconf")
    assert system.reservable_nbytes() == (1 << 30 if name == "win32" else 8 << 30)


@pytest.mark.parametrize("refused", [True, False])
def test_a_file_without_reads_and_writes_at_a_place(monkeypatch, tmp_path, refused):
    for name in ("pwritev", "preadv") if refused else ():
        monkeypatch.delattr(os, name)
    parts = [memoryview(bytes([number] * number)) for number in (3, 5)]
    with open(tmp_path / "file", "x+b", buffering=0) as file:
        written = system.write_at(file.fileno(), parts, 4)
        assert written == (3 if refused else 8)
        into = [memoryview(bytearray(2)), memoryview(bytearray(9))]
        read = system.read_at(file.fileno(), into, 4)
        assert read == (2 if refused else written)
        assert bytes(into[0]) == bytes([3, 3])
        assert system.read_at(file.fileno(), into, 4 + written) == 0


def test_the_lock_of_a_folder(tmp_path):
    one, other = system.open_folder(tmp_path), system.open_folder(tmp_path)
    try:
        assert system.lock(one, shared=True)
        assert system.lock(other, shared=True)
        assert not system.lock(other)
        system.unlock(one)
        assert system.lock(other)
        assert not system.lock(one)
    finally:
        os.close(one)
        os.close(other)


def test_without_locks_what_a_killed_save_left_stays(monkeypatch, tmp_path):
    """It may as well be what another save is writing."""
    left = tmp_path / ".checkpoint-0123456789abcdef.partial"
    left.mkdir()
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "fcntl", None)
        with new_folder(tmp_path) as folder:
            assert folder.is_dir()
            assert left.is_dir()
    assert not folder.exists()
    with new_folder(tmp_path):
        assert not left.exists()


# ---- threads that run side by side ---------------------------------------------------------------------------------

SENDERS, SAMPLES = 4, 500


def test_a_queue_without_the_interpreters_lock_delivers_each_sample_once():
    """Where threads run Python side by side, a sender takes its place under the queue's lock."""
    program = f"""
import sys
sys._is_gil_enabled = lambda: False
import threading
from headrace.server import batch_queue
from headrace.system import has_gil
queue = batch_queue.BatchQueue(0, batch_size=7)
assert not has_gil()
other = batch_queue.BatchQueue(0, batch_size=7)
other.send(0)
with other._core._lock:  # The open batch has places.
    sending = threading.Thread(target=other.send, args=(1,))
    sending.start()
    sending.join(0.2)
    assert sending.is_alive()
sending.join()
def send(sender):
    for number in range({SAMPLES}):
        queue.send(sender * {SAMPLES} + number)
threads = [threading.Thread(target=send, args=(sender,)) for sender in range({SENDERS})]
for thread in threads:
    thread.start()
batches = [queue.sample(timeout=20)[0].tolist() for _ in range({SENDERS * SAMPLES} // 7)]
for thread in threads:
    thread.join()
queue.close()
received = [number for batch in batches for number in batch] + queue.tail().tolist()
assert sorted(received) == list(range({SENDERS * SAMPLES}))
for sender in range({SENDERS}):
    own = [number for number in received if number // {SAMPLES} == sender]
    assert own == sorted(own)
print("done")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("done\n", "")


def test_a_queue_with_the_interpreters_lock_takes_no_other_for_a_sample():
    assert (QueueCore.store.__closure__ is None) == system.has_gil()
