"""server AK1, AK2, AK3, AK4, LP1: some rounds of the soak test, in a process of its own."""

import json
import subprocess
import sys

ROUNDS = """
import json, random, tempfile
from pathlib import Path
from bench.soak_server import Round, load_everything
load_everything()
found = []
for number in range(3):
    with tempfile.TemporaryDirectory() as folder:
        found.append(Round(Path(folder), random.Random(number)).run(kills=3))
print(json.dumps(found))
"""


def test_each_acknowledged_item_is_there_once_after_kills():
    done = subprocess.run(
        [sys.executable, "-c", ROUNDS], capture_output=True, text=True, timeout=55, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for found in json.loads(done.stdout.splitlines()[-1]):
        assert found["items"] >= found["acknowledged"]
    assert sum(found["acknowledged"] for found in json.loads(done.stdout.splitlines()[-1])) > 0
