"""The example of README.md runs as it stands and prints what the page says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

README = Path(__file__).parents[1] / "README.md"
EXAMPLE = re.compile(r"```python\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)


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


def test_the_page_opens_with_the_two_commands():
    commands = re.search(r"```bash\n(.*?)```", README.read_text(), re.DOTALL)
    assert [line.split()[0] for line in commands[1].splitlines()] == ["scripts/demo", "scripts/test"]
    for script in ("demo", "test"):
        assert (README.parent / "scripts" / script).is_file()
