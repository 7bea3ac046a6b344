"""Leaves out tests of libraries that are not here; scripts/test-integrations has them all, and leaves out none."""

import importlib.util
import os

# Nets are small: threads of torch would wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

LIBRARIES = {
    "all": "tianshou",
    "rllib": "pandas",
    "sb3": "stable_baselines3",
    "tianshou": "tianshou",
    "torchrl": "torchrl",
}

collect_ignore_glob = [
    f"test_{name}*.py"
    for name, library in LIBRARIES.items()
    if not os.environ.get("HEADRACE_NO_SKIPS") and importlib.util.find_spec(library) is None
]
