"""The example of README.md runs as it stands and prints what the page says."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import headrace as hr

pytest.importorskip("torch")

README = Path(__file__).parents[1] / "README.md"
EXAMPLE = re.compile(r"```python\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)
SERVER = re.compile(r"```python\n(server = .*?)```", re.DOTALL)


@pytest.mark.timeout(
    180
)  # A process of its own, which loads torch and the kernels; the first time they are compiled.
def test_the_example_prints_what_the_page_says(tmp_path):
    [(program, printed)] = EXAMPLE.findall(README.read_text())
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == printed


def test_the_example_is_short():
    [(program, _)] = EXAMPLE.findall(README.read_text())
    assert len(program.strip().splitlines()) <= 15


def test_the_example_of_a_server_runs(tmp_path):
    step = {"observation": np.zeros(4), "action": 0, "reward": 1.0, "terminated": False, "truncated": False}
    table = hr.Table("replay", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=9)
    [program] = SERVER.findall(README.read_text())
    with hr.Replay(hr.Signature.like(step), [table]) as replay:
        rule = hr.ItemRule("replay", length=1, lookahead=3)
        names = {"hr": hr, "replay": replay, "rule": rule, "steps": [step] * 9}
        try:
            exec(program.replace("/tmp", str(tmp_path)), names)
        finally:
            names["client"].close()
            names["server"].stop()
        assert names["batch"]["reward"].tolist() == pytest.approx([1 + 0.99 + 0.99**2] * 256)


def test_the_page_opens_with_the_two_commands():
    commands = re.search(r"```bash\n(.*?)```", README.read_text(), re.DOTALL)
    assert [line.split()[0] for line in commands[1].splitlines()] == ["scripts/demo", "scripts/test"]
    for script in ("demo", "test"):
        assert (README.parent / "scripts" / script).is_file()
