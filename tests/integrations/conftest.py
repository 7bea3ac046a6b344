"""Leaves out tests of libraries that are not here; scripts/test-integrations has them all, and leaves out none."""

import importlib.util
import os

LIBRARIES = {"sb3": "stable_baselines3", "torchrl": "torchrl"}

collect_ignore_glob = [
    f"test_{name}*.py"
    for name, library in LIBRARIES.items()
    if not os.environ.get("HEADRACE_NO_SKIPS") and importlib.util.find_spec(library) is None
]
