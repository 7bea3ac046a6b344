"""Episodes in one Parquet file."""

from headrace.datasets.parquet.public import load_parquet, save_parquet

__all__ = ["load_parquet", "save_parquet"]
