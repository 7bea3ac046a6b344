"""Keeps output of environments apart from the output of a command."""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress
from typing import Self


class StdoutAside:
    """Sends to stderr all output of Python and C libraries meanwhile, so that stdout has that of the command alone."""

    def __enter__(self) -> Self:
        self._stdout, sys.stdout = sys.stdout, sys.stderr
        self._copy: int | None = None
        with suppress(OSError):  # A descriptor may be closed.
            self._stdout.flush()
            self._copy = os.dup(1)
            os.dup2(2, 1)
        return self

    def __exit__(self, *exception: object) -> None:
        self.restore()

    def restore(self) -> None:
        """Prints to stdout again."""
        sys.stdout = self._stdout
        if self._copy is not None:
            with suppress(OSError, AttributeError):
                ctypes.CDLL(None).fflush(None)
            os.dup2(self._copy, 1)
            os.close(self._copy)
            self._copy = None
