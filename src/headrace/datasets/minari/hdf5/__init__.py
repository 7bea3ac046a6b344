"""Minari's HDF5 form."""
