"""HDF5 files of Minari datasets."""
