"""Commands on environments that hang, exit, print, or leave threads: they end, and say what they have found."""

import json
import subprocess
import sys

import pytest

_ENVIRONMENTS = """
import os, sys, threading
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

class FailsToClose(CounterEnv):
    def close(self):
        raise OSError("by intent")

gymnasium.register("Prints-v0", entry_point=lambda: Prints(3))

def hangs(): return Hangs(3)
def hangs_itself(): threading.Event().wait()
def exits(): return Exits(3)
def exits_itself(): sys.exit(4)
def prints(): return Prints(3)
def threads(): return Threads(3)
def fails_to_close(): return FailsToClose(3)
"""


@pytest.mark.parametrize(
    ("name", "code", "check", "text"),
    [
        ("hangs", 1, "hang", "no call has returned for 0.5 s, after 2 that have; now in wait"),
        ("hangs_itself", 1, "hang", "after 0 that have"),
        ("exits", 1, "exit", "SystemExit: 3, raised in step"),
        ("exits_itself", 1, "build", "SystemExit: 4, raised in exits_itself"),
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
