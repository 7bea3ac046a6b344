"""Episodes in one Parquet file."""
