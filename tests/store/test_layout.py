"""The constants that kernels are compiled with are those that Python sees."""

import importlib
import re
from pathlib import Path

import pytest

import headrace

PACKAGE = Path(headrace.__file__).parent
TWINS = sorted(path for path in PACKAGE.rglob("*.pxd") if "enum:" in path.read_text())


def constants_of(text: str) -> dict[str, int]:
    """Those of an enum, and those that are too large for one."""
    found = {name: int(value, 0) for name, value in re.findall(r"^    (\w+) = (-?\w+)$", text, re.MULTILINE)}
    large = dict(re.findall(r"#define (\w+) (\w+)LL", text))
    for name, macro in re.findall(r'const long long (\w+) "(\w+)"', text):
        found[name] = int(large[macro], 0)
    return found


def test_there_are_such_files():
    names = {str(path.relative_to(PACKAGE)) for path in TWINS}
    assert names == {
        "collectors/loop/episode_totals.pxd",
        "collectors/loop/lane_buffer.pxd",
        "kernels/row_copy.pxd",
        "kernels/handoff.pxd",
        "replay/sampling/fused_kernel.pxd",
        "store/copying.pxd",
        "store/layout.pxd",
        "store/records.pxd",
        "tables/items/layout.pxd",
    }


@pytest.mark.parametrize("path", TWINS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_constants_for_the_compiler_are_those_of_python(path: Path):
    text = path.read_text()
    compiled = constants_of(text)
    assert len(compiled) == len(re.findall(r"^    (?:const long long )?\w+ (?:=|\")", text, re.MULTILINE))
    module = importlib.import_module(".".join(("headrace", *path.relative_to(PACKAGE).with_suffix("").parts)))
    assert compiled == {name: getattr(module, name) for name in compiled}
