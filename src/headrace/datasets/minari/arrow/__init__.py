"""Minari's Arrow and Parquet forms."""
