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
from importlib.machinery import ExtensionFileLoader, FileFinder, ModuleSpec, SourceFileLoader
from types import ModuleType

VARIABLE = "HEADRACE_PLAIN"
_A_KERNEL = "headrace.kernels.numbers"


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
        ImportError: they were not compiled, and nobody asked for plain ones.
    """
    if os.environ.get(VARIABLE, "0") != "0":
        sys.meta_path.insert(0, _Sources)
        return
    found = importlib.util.find_spec(_A_KERNEL)
    if found is None or not isinstance(found.loader, ExtensionFileLoader):
        raise ImportError(
            f"headrace: its kernels are not compiled for this Python ({sys.implementation.cache_tag}); "
            "install it anew: pip install headrace, or in a clone scripts/setup"
        )
