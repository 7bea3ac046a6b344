"""Episodes from npz and Parquet files of other tools."""
