"""Streams of batches for a learner: sampled ahead, as NumPy, torch or JAX arrays, with a state that can be saved."""

from headrace.loaders.loader import Loader

__all__ = ["Loader"]
