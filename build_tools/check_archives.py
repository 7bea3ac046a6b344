"""Checks what is in the wheel and in the sdist: `check_archives.py FOLDER`."""

from __future__ import annotations

import sys
import tarfile
import zipfile
from pathlib import Path

import kernels


def main(folder: Path) -> None:
    """Exits with a message if one of the two lacks a file, or has one that nobody needs."""
    (wheel,) = folder.glob("*.whl")
    (sdist,) = folder.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    sources = {str(path.relative_to(kernels.ROOT / "src")) for path in _package().rglob("*.py")}
    compiled = {
        str(kernels.compiled(source).relative_to(kernels.ROOT / "src"))
        for source in (*kernels.sources(), kernels.SHARED)
    }
    page = set((_package() / "monitor" / "page").iterdir())
    shown = {str(path.relative_to(kernels.ROOT / "src")) for path in page}
    _compare(wheel, packed, sources | compiled | shown | {"headrace/py.typed"})

    with tarfile.open(sdist) as files:
        unpacked = {name.partition("/")[2] for name in files.getnames()}
    needed = {
        str(path.relative_to(kernels.ROOT))
        for path in {*_package().rglob("*.p*"), *page}
        if path.suffix != ".pyc"
    }
    needed |= {
        "LICENSE",
        "README.md",
        "pyproject.toml",
        "setup.py",
        "build_tools/backend.py",
        "tests/conftest.py",
    }
    if missing := sorted(needed - unpacked - {"src/headrace/__pycache__"}):
        sys.exit(f"{sdist.name} lacks {missing}")
    if made := [name for name in unpacked if name.endswith((".so", ".pyd", ".c", ".pyc"))]:
        sys.exit(f"{sdist.name} has {sorted(made)}")


def _package() -> Path:
    return kernels.ROOT / "src" / "headrace"


def _compare(wheel: Path, packed: set[str], expected: set[str]) -> None:
    if packed != expected:
        sys.exit(
            f"{wheel.name} lacks {sorted(expected - packed)} and has {sorted(packed - expected)}, which nobody needs"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
