"""A second of the soak of memory, in a process of its own."""

import re
import subprocess
import sys


def test_every_process_works_and_its_memory_is_read():
    done = subprocess.run(
        [sys.executable, "-m", "bench.soak_memory", "1", "1"],
        capture_output=True,
        text=True,
        timeout=55,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    [line] = done.stdout.splitlines()
    assert all(f"{name} " in line for name in ("server", "Unix", "TCP", "zstd", "come and go"))
    assert min(map(int, re.findall(r"(\d+) (?:inserts|samples|connections)", line))) > 0
