"""h5py, or the name of the extra to install."""

# Rules: datasets G10

from __future__ import annotations

try:
    import h5py
except ImportError as missing:
    raise ImportError('datasets in HDF5 need h5py: pip install "headrace[minari]"') from missing

__all__ = ["h5py"]
