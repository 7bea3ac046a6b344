"""Kernels as they are written, in place of what was compiled of them.

`HEADRACE_PLAIN=1` runs the same files as Python, though compiled ones lie beside them: that is how they are debugged
and how their coverage is measured. It takes Cython, which gives them the names that they use, and a hundred times as
long.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from types import ModuleType

VARIABLE = "HEADRACE_PLAIN"
# Without pathlib, whose import takes 4 ms.
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class _Sources:
    """Finds the sources of the package, and nothing that was compiled."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if path is None or not name.startswith("headrace."):
            return None
        for folder in path:
            found = FileFinder(folder, (SourceFileLoader, [".py"])).find_spec(name)
            if found is not None:
                return found
        return None


def choose() -> None:
    """See to it that kernels are imported as the environment asks.

    Raises:
        ImportError: some were not compiled, and `HEADRACE_PLAIN` does not ask for plain ones; or it does, and Cython is
            not installed.
    """
    if os.environ.get(VARIABLE, "0") != "0":
        if importlib.util.find_spec("cython") is None:
            raise ImportError(
                f"headrace: {VARIABLE} is set, and plain kernels take their names from Cython, which is not installed; "
                f"pip install cython, or unset {VARIABLE}"
            )
        sys.meta_path.insert(0, _Sources)
        return
    missing = _missing()
    if missing:
        others = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ImportError(
            f"headrace: its kernels are not compiled for this Python ({sys.implementation.cache_tag}): "
            f"{missing[0]}{others}; install it anew: pip install headrace, or in a clone scripts/setup"
        )


def _missing() -> list[str]:
    """Returns the kernels that nothing was compiled of: Python would import their sources, and say nothing.

    An installed package has no `.pxd` files and is whole or not; in a clone a kernel may be newer than the last build.
    """
    kernels = [os.path.join(_PACKAGE, "kernels", "numbers")]
    for folder, _, names in os.walk(_PACKAGE):
        stems = {os.path.join(folder, name[:-4]) for name in names if name.endswith(".pxd")}
        kernels += [stem for stem in stems if _is_kernel(stem + ".py")]
    return sorted({os.path.relpath(stem + ".py", _PACKAGE) for stem in kernels if not _is_compiled(stem)})


def _is_kernel(source: str) -> bool:
    if not os.path.isfile(source):
        return False
    with open(source, "rb") as file:
        return b"\nimport cython\n" in file.read()


def _is_compiled(stem: str) -> bool:
    return any(os.path.isfile(stem + suffix) for suffix in EXTENSION_SUFFIXES)
