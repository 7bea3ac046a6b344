"""Kernels are compiled and loaded in a thread of their own, in which no interrupt lands."""

import _thread
import ctypes
import gc
import os
import subprocess
import sys
import threading

import pytest

import headrace.store.compiling as compiling_module
from headrace.store.compiling import compiled_apart

# Ctrl-C comes when a call returns: here at that of the call with which the compiler frees a string.
_INTERRUPTED = """
import gc, sys
from headrace.store.jit import unsigned

def interrupt(frame, event, argument):
    if event == "return" and frame.f_code.co_name == "__call__" and "llvmlite" in frame.f_code.co_filename:
        if frame.f_locals["self"]._cfn.__name__ == "LLVMPY_DisposeString":
            sys.setprofile(None)
            raise KeyboardInterrupt

sys.setprofile(interrupt)
try:
    unsigned(3)
except KeyboardInterrupt:
    print("interrupted in the compiler")
sys.setprofile(None)
gc.collect()
print(unsigned(3))
"""


@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled")
def test_an_interrupt_while_a_kernel_is_loaded_frees_nothing_twice():
    """The process ended with "free(): double free detected in tcache 2"."""
    done = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED], check=False, capture_output=True, text=True, timeout=100
    )
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr


class Hit(Exception):
    """Raised in another thread."""


class Compilation:
    """A compiler that goes on when it is told, and its one caller."""

    def __init__(self):
        self.begun, self.goes_on = threading.Event(), threading.Event()
        self.threads, self.ended = [], threading.Event()
        self.call = compiled_apart(self.compile)

    def compile(self, name):
        self.threads.append(threading.get_ident())
        self.begun.set()
        assert self.goes_on.wait(30)
        self.ended.set()
        return f"{name} compiled"


def test_an_asynchronous_exception_ends_the_wait_and_not_the_compiler():
    compilation, outcomes = Compilation(), []

    def call():
        try:
            outcomes.append(compilation.call("kernel"))
        except Hit:
            outcomes.append("hit")

    caller = threading.Thread(target=call)
    caller.start()
    assert compilation.begun.wait(30)
    raised = ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(caller.ident), ctypes.py_object(Hit))
    assert raised == 1
    compilation.goes_on.set()
    caller.join(30)
    assert outcomes == ["hit"]
    assert compilation.ended.wait(30)
    assert compilation.threads != [caller.ident]
    assert compilation.call("kernel") == "kernel compiled"


def test_kernels_that_a_kernel_calls_are_compiled_in_the_same_thread():
    threads = []
    inner = compiled_apart(lambda: threads.append(threading.get_ident()))

    def outer():
        threads.append(threading.get_ident())
        inner()

    compiled_apart(outer)()
    assert threads[0] == threads[1] != threading.get_ident()


def test_what_the_compiler_raises_comes_to_the_caller():
    def compile_kernel():
        raise ValueError("no such type")

    with pytest.raises(ValueError, match="no such type"):
        compiled_apart(compile_kernel)()


def test_no_finalizer_runs_in_the_thread_that_compiles():
    """The caller may hold the lock that it takes."""
    assert compiled_apart(gc.isenabled)() is False
    with compiling_module._ONE_AT_A_TIME:
        assert gc.isenabled()


def test_a_thread_that_is_lost_is_replaced(monkeypatch):
    """In Python 3.11 an asynchronous exception for the caller may end the thread that it has just started."""
    started, start = [], _thread.start_new_thread

    def lose_the_first(function, arguments):
        started.append(function)
        if len(started) > 1:
            start(function, arguments)

    monkeypatch.setattr(compiling_module, "_PATIENCE", 0.0)
    monkeypatch.setattr(_thread, "start_new_thread", lose_the_first)
    assert compiled_apart(threading.get_ident)() != threading.get_ident()
    assert len(started) > 1


def test_what_two_threads_began_is_compiled_once(monkeypatch):
    waiting, start, calls = [], _thread.start_new_thread, []

    def start_late(function, arguments):
        waiting.append(function)
        if len(waiting) == 2:
            for each in waiting:
                start(each, arguments)

    monkeypatch.setattr(compiling_module, "_PATIENCE", 0.0)
    monkeypatch.setattr(_thread, "start_new_thread", start_late)
    compiled_apart(lambda: calls.append("compiled"))()
    assert calls == ["compiled"]


def test_without_another_thread_the_caller_compiles(monkeypatch):
    def refuse(function, arguments):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_thread, "start_new_thread", refuse)
    assert compiled_apart(threading.get_ident)() == threading.get_ident()


def test_a_fork_waits_for_the_compiler():
    """In the child its lock would stay locked, and the collector of garbage off."""
    for _ in range(10):
        compilation = Compilation()
        caller = threading.Thread(target=compilation.call, args=("kernel",))
        caller.start()
        assert compilation.begun.wait(30)
        compilation.goes_on.set()
        child = os.fork()
        if not child:
            fine = gc.isenabled() and compiled_apart(lambda: 7)() == 7
            os._exit(0 if fine else 1)
        assert os.waitpid(child, 0)[1] == 0
        caller.join(30)
