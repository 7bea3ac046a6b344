"""Ctrl-C at every moment of a call at which Python looks for signals.

Python looks for signals when a function begins, when a call of compiled code returns, and when a loop goes round; not
in between, and not when a function of Python returns. `Interrupt` raises at one of these moments after the other.
"""

import contextlib
import dis
import gc
import sys
from pathlib import Path

import headrace as hr

SOURCES = (str(Path(hr.__file__).parent), contextlib.__file__)


class Interrupt:
    """KeyboardInterrupt at the `number`-th moment of the library's code inside, or of some functions or files of it."""

    def __init__(self, number, functions=None, folder=""):
        self.number = number
        self._functions, self._folder = functions, folder
        self._seen = 0
        self._last = {}
        self._called_python = False

    def __enter__(self):
        gc.disable()  # What else is garbage is not to be found inside.
        self._before = sys.gettrace()
        sys.settrace(self._enter)

    def __exit__(self, *error):
        sys.settrace(self._before)
        gc.enable()

    def _enter(self, frame, event, argument):
        self._called_python = True
        if not frame.f_code.co_filename.startswith(SOURCES) or _is_finalizer(frame):
            return None
        if self._folder not in frame.f_code.co_filename:
            return None
        if self._functions is not None and frame.f_code.co_name not in self._functions:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._step

    def _step(self, frame, event, argument):
        if event == "return":
            self._called_python = True
        if event != "opcode":
            return self._step
        last, called_python = self._last.get(frame), self._called_python
        self._called_python = False
        name = self._last[frame] = dis.opname[frame.f_code.co_code[frame.f_lasti]]
        returned = last is not None and last.startswith("CALL") and not called_python
        if returned or last == "RESUME" or name == "JUMP_BACKWARD":
            self._seen += 1
            if self._seen == self.number:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self._step


def _is_finalizer(frame):
    """Python ignores what is raised in there."""
    while frame is not None and frame.f_code.co_name != "__del__":
        frame = frame.f_back
    return frame is not None
