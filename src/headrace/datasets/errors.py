"""Errors of damaged files, with the place of the damage."""

# Rules: datasets G11

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.errors import DatasetError


@contextmanager
def dataset_errors(file: Path, *places: str) -> Iterator[None]:
    """Turns every error in reading a file into a `DatasetError` with the file, the episode and the field.

    A damaged file raises errors of many libraries: of HDF5, Arrow and zlib, of parsing, of memory. The error of an
    optional library that is not installed stays an ImportError.

    >>> with dataset_errors(Path("x.npz"), "episode 3"):
    ...     {}["rewards"]
    Traceback (most recent call last):
    ...
    headrace.errors.DatasetError: x.npz: episode 3: missing 'rewards'
    """
    try:
        yield
    except (DatasetError, ImportError):
        raise
    except Exception as error:
        # The text of a KeyError is only the key.
        text = f"missing {error}" if isinstance(error, KeyError) else str(error) or type(error).__name__
        raise DatasetError(": ".join([str(file), *places, text])) from error


def existing_file(path: Path) -> Path:
    """Returns the absolute path of a file.

    Raises:
        FileNotFoundError: it does not exist.
    """
    found = path.absolute()
    if not found.exists():
        raise FileNotFoundError(f"no such file: {found}")
    return found
