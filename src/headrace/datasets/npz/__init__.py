"""Episodes in one npz file."""

from headrace.datasets.npz.public import load_npz, save_npz

__all__ = ["load_npz", "save_npz"]
