"""pyarrow, or what to install where it is missing."""

# Rules: datasets G10

from __future__ import annotations

try:
    import pyarrow as pa
    from pyarrow import parquet
except ImportError as missing:
    raise ImportError('Parquet datasets need pyarrow: pip install "headrace[parquet]"') from missing

__all__ = ["pa", "parquet"]
