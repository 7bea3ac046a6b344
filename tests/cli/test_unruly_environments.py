"""Commands on environments that hang, exit, print, or leave threads: they end, and say what they have found."""

import json
import subprocess
import sys

import pytest

_ENVIRONMENTS = """
import ctypes, os, signal, sys, threading
import gymnasium
from headrace.testing import CounterEnv

class Hangs(CounterEnv):
    def step(self, action):
        threading.Event().wait()

class Exits(CounterEnv):
    def step(self, action):
        sys.exit(3)

class Prints(CounterEnv):
    def step(self, action):
        print("of Python")
        os.write(1, b"of a library")
        return super().step(action)

class Threads(CounterEnv):
    def __init__(self, length):
        super().__init__(length)
        threading.Thread(target=threading.Event().wait, name="of-the-simulator").start()

class Fails(Threads):
    def step(self, action):
        raise RuntimeError("by intent")

class Ends(CounterEnv):
    def __init__(self, how):
        super().__init__(3)
        self.how = how

    def step(self, action):
        if self.step_count == 2:
            if self.how == "exit":
                os._exit(7)
            if self.how == "zero":
                os._exit(0)
            if self.how == "segfault":
                ctypes.string_at(0)
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)

class FailsToClose(CounterEnv):
    def close(self):
        raise OSError("by intent")

gymnasium.register("Prints-v0", entry_point=lambda: Prints(3))
gymnasium.register("Threads-v0", entry_point=lambda: Threads(3))
gymnasium.register("Fails-v0", entry_point=lambda: Fails(3))

def hangs(): return Hangs(3)
def hangs_itself(): threading.Event().wait()
def exits(): return Exits(3)
def exits_itself(): sys.exit(4)
def prints(): return Prints(3)
def threads(): return Threads(3)
def ends_by_exit(): return Ends("exit")
def ends_by_zero(): return Ends("zero")
def ends_by_segfault(): return Ends("segfault")
def ends_by_kill(): return Ends("kill")
def ends_itself(): os._exit(3)
def fails_to_close(): return FailsToClose(3)
"""


@pytest.mark.parametrize(
    ("name", "code", "check", "text"),
    [
        ("hangs", 1, "hang", "no call has returned for 0.5 s, after 2 that have; now in wait"),
        ("hangs_itself", 1, "hang", "after 0 that have"),
        ("exits", 1, "exit", "SystemExit: 3, raised in step"),
        ("exits_itself", 1, "build", "SystemExit: 4, raised in exits_itself"),
        (
            "ends_by_exit",
            1,
            "process",
            "ended this process with exit code 7, after 7 calls that had returned",
        ),
        (
            "ends_by_zero",
            1,
            "process",
            "ended this process with exit code 0, after 7 calls that had returned",
        ),
        ("ends_by_segfault", 1, "process", "ended by SIGSEGV, after 7 calls"),
        ("ends_by_kill", 1, "process", "ended by SIGKILL, after 7 calls"),
        ("ends_itself", 1, "process", "ended this process with exit code 3, after 0 calls"),
        ("prints", 0, "step", "1000 steps"),
        ("threads", 0, "threads", "of-the-simulator"),
        ("fails_to_close", 0, "close", "OSError: by intent, raised in close"),
    ],
)
def test_it_ends_and_says_why(name, code, check, text, tmp_path):
    (tmp_path / "simulators.py").write_text(_ENVIRONMENTS)
    command = [sys.executable, "-m", "headrace", "doctor", f"simulators:{name}", "--json"]
    timeout = ["--timeout", "0.5"] if check == "hang" else []
    done = subprocess.run(
        command + timeout, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == code, done.stderr
    # Output of the environment is not on stdout, which is one JSON object.
    findings = {finding["check"]: finding for finding in json.loads(done.stdout)["findings"]}
    assert text in findings[check]["text"]
    if name == "prints":
        assert "of Python" in done.stderr
        assert "of a library" in done.stderr


def test_what_was_found_before_the_end_of_the_process_is_told(tmp_path):
    (tmp_path / "simulators.py").write_text(_ENVIRONMENTS)
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "doctor", "simulators:ends_by_segfault"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "simulators:ends_by_segfault: 1 error, 0 warnings" in done.stdout
    assert "the factory can be sent to workers" in done.stdout
    assert "process: what to do" in done.stdout
    assert "Current thread" in done.stderr  # Where it was.
    assert "in step" in done.stderr


def test_a_module_that_ends_the_process_as_it_is_imported(tmp_path):
    (tmp_path / "ending.py").write_text("import os\nos._exit(5)\n")
    command = [sys.executable, "-m", "headrace", "doctor", "ending:make", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1, done.stderr
    (finding,) = json.loads(done.stdout)["findings"]
    assert (finding["check"], finding["level"]) == ("process", "error")
    assert "exit code 5" in finding["text"]


@pytest.mark.parametrize("workers", ["0", "1"])
def test_what_is_printed_while_collecting_is_not_in_the_json_object(workers, tmp_path):
    (tmp_path / "simulators.py").write_text(_ENVIRONMENTS)
    command = [sys.executable, "-m", "headrace", "collect", "simulators:Prints-v0", "--steps", "64", "--json"]
    done = subprocess.run(
        [*command, "--workers", workers],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert json.loads(done.stdout)["frames"] == 64
    assert "of Python" in done.stderr
    assert "of a library" in done.stderr


@pytest.mark.parametrize(("name", "code"), [("Threads", 0), ("Fails", 1)])
def test_a_command_ends_although_its_environment_leaves_a_thread(name, code, tmp_path):
    (tmp_path / "simulators.py").write_text(_ENVIRONMENTS)
    command = [
        sys.executable,
        "-m",
        "headrace",
        "collect",
        f"simulators:{name}-v0",
        "--steps=64",
        "--workers=0",
    ]
    done = subprocess.run(
        [*command, "--out=out"], cwd=tmp_path, capture_output=True, text=True, timeout=40, check=False
    )
    assert done.returncode == code, done.stderr
    assert "this command (pid" in done.stderr
    assert "of-the-simulator" in done.stderr
    assert bool(list((tmp_path / "out").glob("*"))) == (not code)
