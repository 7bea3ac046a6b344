"""The description of tables is all that a remote client needs: it brings no kernel and no store."""

import subprocess
import sys

LOADED = """
import sys
import headrace.tables.description
from headrace.tables.description import rate_limiters, rules, selectors, table, table_json
for name, module in sys.modules.items():
    if name.startswith("headrace"):
        print(name, module.__spec__.origin)
"""


def test_descriptions_load_no_kernel_and_no_store():
    found = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    loaded = dict(line.split(" ", 1) for line in found.stdout.splitlines())
    assert "headrace.tables.description.table" in loaded
    assert [name for name, origin in loaded.items() if not origin.endswith(".py")] == []
    assert [name for name in loaded if name.startswith(("headrace.store", "headrace.views"))] == []
    assert [name for name in loaded if name.startswith("headrace.tables.")] == [
        name for name in loaded if name.startswith("headrace.tables.description")
    ]
