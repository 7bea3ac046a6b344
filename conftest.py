"""Which modules are not looked at for doctests: those of libraries that are not here."""

import importlib.util

collect_ignore = [] if importlib.util.find_spec("jax") else ["src/headrace/loaders/jax_batch.py"]
