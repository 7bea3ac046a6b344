"""pyarrow, or what to install where it is missing."""

# Rules: datasets G10

from __future__ import annotations

try:
    import pyarrow as pa
    from pyarrow import compute, ipc, parquet  # noqa: F401 - to be found as pa.compute and so on
except ImportError as missing:
    raise ImportError(
        'Minari datasets in arrow and parquet need pyarrow: pip install "headrace[parquet]"'
    ) from missing

__all__ = ["pa"]
