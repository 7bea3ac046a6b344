"""Ctrl-C behind every call of a call.

Other than `interrupts`, it comes also where a function of Python returns, as other versions of Python may have it.
"""

import dis
import functools
import sys
from pathlib import Path

import headrace as hr

SOURCE = str(Path(hr.__file__).parent)
# Behind these the interpreter looks for signals.
LOOKS = ("RESUME", "CALL", "CALL_FUNCTION_EX", "JUMP_BACKWARD")


class Interrupter:
    """A trace function that raises KeyboardInterrupt where the interpreter may: the places are counted from 0."""

    def __init__(self, point, within):
        self.left, self.within = point, within
        self.place = None
        self._last = {}

    def __call__(self, frame, event, _):
        name = frame.f_code.co_filename
        where = f"{name}:{frame.f_code.co_qualname}"
        if not name.startswith(SOURCE) or not any(part in where for part in self.within):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            self._look(frame)
        elif event == "return":
            self._last.pop(frame, None)
        return self

    def _look(self, frame):
        last = self._last.get(frame)
        self._last[frame] = opname_at(frame.f_code, frame.f_lasti)
        if last is not None and last.startswith(LOOKS):
            if not self.left:
                self.place = f"{frame.f_code.co_qualname}:{frame.f_lineno}"
                raise KeyboardInterrupt(self.place)
            self.left -= 1


@functools.cache
def opnames(code):
    return {each.offset: each.opname for each in dis.get_instructions(code)}


def opname_at(code, offset):
    return opnames(code)[offset]


def interrupt_call(point, call, *arguments, within=("",)):
    """Calls a function, and raises KeyboardInterrupt at a place of it; returns the place, None if there are fewer."""
    interrupter, before = Interrupter(point, within), sys.gettrace()
    sys.settrace(interrupter)
    try:
        call(*arguments)
    except KeyboardInterrupt:
        assert interrupter.place is not None
    finally:
        sys.settrace(before)
    return interrupter.place
