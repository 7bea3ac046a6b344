"""Minari datasets."""

from headrace.datasets.minari.public import load_minari, save_minari

__all__ = ["load_minari", "save_minari"]
