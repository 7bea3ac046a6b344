"""docs/integrations.md: its code runs, from top to bottom."""

import re
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[2] / "docs" / "integrations.md").read_text()


@pytest.mark.filterwarnings("ignore")
def test_the_code_of_the_page():
    names = {}
    blocks = re.findall(r"^```python\n(.*?)^```", TEXT, flags=re.DOTALL | re.MULTILINE)
    assert len(blocks) == 6
    for block in blocks:
        exec(compile(block, "docs/integrations.md", "exec"), names)
    assert names["model"]._n_updates > 0
