"""How kernels are compiled.

A kernel is a plain Python loop over NumPy arrays. Numba compiles it on its first call, without the interpreter lock
held while it runs, and keeps the result on disk. Kernels allocate nothing: scratch arrays are given to them. So they
are compiled without reference counts of arrays, and small kernels are inlined into large ones: following a lane costs
some 15 ns a row that way, and more than ten times as much without.

`NUMBA_DISABLE_JIT=1` runs the same loops as Python: that is how they are debugged and how their coverage is measured.

Numba is imported here and in `intrinsics.py`, nowhere else in the package, so `import headrace` does not pay for it.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

import numba
import numpy as np

from headrace.store.compiling import compiled_apart

F = TypeVar("F", bound=Callable[..., object])

# Numbers inside kernels are Python's or NumPy's, as the loop comes to them; compiled code knows one kind of each.
Int: TypeAlias = Any
Float: TypeAlias = Any
Bool: TypeAlias = Any

_PACKAGE = Path(__file__).parents[1]


_OPTIONS: dict[str, Any] = {
    "nogil": True,
    "cache": True,
    "error_model": "numpy",
    "forceinline": True,
    "_nrt": False,  # No reference counts: nothing is allocated.
}


def kernel(function: F) -> F:
    """Compile `function` at its first call: no interpreter lock, cached on disk, NumPy's division rules."""
    return _compile(function, _OPTIONS)


def kernel_apart(function: F) -> F:
    """As `kernel`, but not inlined: for what few calls need, and for loops that want the registers for themselves."""
    return _compile(function, {**_OPTIONS, "forceinline": False})


def _compile(function: F, options: dict[str, Any]) -> F:
    settings: Any = numba.config
    before = settings.CACHE_DIR
    settings.CACHE_DIR = _CACHE_FOLDER
    try:
        compiled: Any = numba.njit(**options)(function)
    finally:
        settings.CACHE_DIR = before
    if not settings.DISABLE_JIT:
        compiled.compile = compiled_apart(compiled.compile)
    return cast(F, compiled)


def opening(function: F) -> F:
    """A function that carves arrays out of memory: written into the kernels that call it, since those return none."""
    return cast(F, numba.njit(inline="always")(function))


def plain(function: F) -> F:
    """The Python of an `opening`, for calls from outside of kernels.

    An interrupt while numba makes Python's tuples of what compiled code returns ends the process with a segmentation
    fault (tests/replay/test_item_memory.py::test_an_interrupt_while_arrays_are_opened_is_only_that).
    """
    return cast(F, getattr(function, "py_func", function))


def _cache_folder() -> str:
    """A folder of compiled kernels for exactly these sources.

    Numba looks only at the file of the kernel itself; one that calls into a changed file would stay as it was. Files
    that no kernel can see do not count, so that a change to them compiles nothing again.
    """
    stamp = hashlib.sha256(str(_PACKAGE).encode())
    for text in _sources_of_kernels():
        stamp.update(text)
    base = os.environ.get("NUMBA_CACHE_DIR") or Path(
        os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"), "headrace"
    )
    return str(Path(base, f"kernels-{stamp.hexdigest()[:16]}"))


def _sources_of_kernels() -> list[bytes]:
    """The files with kernels, and all that they import from the three folders, directly or not."""
    sources = {
        f"headrace.{folder}.{path.stem}": path.read_bytes()
        for folder in ("store", "replay", "views")
        for path in sorted((_PACKAGE / folder).glob("*.py"))
    }
    imports = {
        name: re.findall(rb"^from (headrace[.\w]+) import", text, re.MULTILINE)
        for name, text in sources.items()
    }
    pending = [name for name, lines in imports.items() if b"headrace.store.jit" in lines]
    seen: set[str] = set()
    while pending:
        name = pending.pop()
        if name in sources and name not in seen:
            seen.add(name)
            pending += [line.decode() for line in imports[name]]
    return [sources[name] for name in sorted(seen)]


_CACHE_FOLDER = _cache_folder()


@kernel
def unsigned(number: Int) -> Int:
    """Casts to unsigned, so that no check for negative indices is compiled.

    Without it every access of a loop over row numbers takes three instructions more (bench/README.md has the figures).
    Not for arithmetic: with a signed number it makes a float.
    """
    return np.uint64(number)
