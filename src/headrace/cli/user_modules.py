"""Modules of the user."""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType


def import_module(name: str) -> ModuleType:
    """Imports a module that is installed or lies in the working directory, as `python -m` would find it.

    Raises:
        ImportError: there is none, or it cannot be imported.
    """
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return importlib.import_module(name)
