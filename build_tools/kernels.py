"""Finds the kernels of the package, what each of them is compiled from, and which are out of date."""

from __future__ import annotations

import re
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Functions of Cython and its memoryviews, once instead of in every kernel. Cython writes it, in C.
SHARED = ROOT / "src" / "headrace" / "kernels" / "_shared.c"
# These decide how every kernel is compiled.
_RECIPE = (ROOT / "setup.py", ROOT / "build_tools" / "compiler.py")
_CIMPORT = re.compile(r"^(?:from\s+(headrace[\w.]+)\s+cimport|cimport\s+(headrace[\w.]+))", re.MULTILINE)
_COMPILED = re.compile(r"\.(?:so|pyd)$")


def sources() -> list[Path]:
    """Returns the files to compile: each imports `cython` and has a `.pxd` of its name beside it."""
    found = (path.with_suffix(".py") for path in (ROOT / "src" / "headrace").rglob("*.pxd"))
    return sorted(path for path in found if path.exists() and "\nimport cython\n" in path.read_text("utf-8"))


def module_name(source: Path) -> str:
    """Returns the name under which a source file is imported."""
    return ".".join(source.relative_to(ROOT / "src").with_suffix("").parts)


def compiled(source: Path) -> Path:
    """Returns the place of the compiled kernel, for the Python that runs this."""
    return source.with_name(source.stem + EXTENSION_SUFFIXES[0])


def out_of_date() -> list[Path]:
    """Returns the sources whose compiled kernel is missing, or older than a file it is compiled from."""
    return [source for source in (*sources(), SHARED) if not _is_fresh(source)]


def _is_fresh(source: Path) -> bool:
    made = compiled(source)
    if not made.exists():
        return False
    needed = {source, *_RECIPE} | _declarations(source.with_suffix(".pxd"), set())
    return made.stat().st_mtime >= max(path.stat().st_mtime for path in needed if path.exists())


def _declarations(pxd: Path, seen: set[Path]) -> set[Path]:
    """Returns the `.pxd` file and those of the package that it reads, directly or through others."""
    if pxd not in seen and pxd.exists():
        seen.add(pxd)
        for names in _CIMPORT.findall(pxd.read_text("utf-8")):
            parts = "".join(names).split(".")
            _declarations((ROOT / "src").joinpath(*parts).with_suffix(".pxd"), seen)
    return seen


def remove_leftovers(*folders: Path) -> None:
    """Deletes compiled files whose source is gone or is not a kernel any more: Python would import them.

    Args:
        folders: each has the package `headrace` in it.
    """
    kernels = set(map(module_name, (*sources(), SHARED)))
    for folder in folders:
        for path in (folder / "headrace").rglob("*"):
            name = ".".join((*path.relative_to(folder).parts[:-1], path.name.partition(".")[0]))
            if _COMPILED.search(path.name) and name not in kernels:
                path.unlink()
