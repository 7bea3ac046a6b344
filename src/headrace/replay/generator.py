"""The random generator of a replay: its numbers inside kernels, its state as a record for files."""

from __future__ import annotations

import ctypes
from typing import Any, Literal

import msgspec
import numpy as np

_BITS = 128


def addresses_of(random: np.random.Generator) -> tuple[int, int]:
    """What `intrinsics.next_double` asks for numbers: a function and a state, which live as long as the generator."""
    interface: Any = random.bit_generator.ctypes
    return int(ctypes.cast(interface.next_double, ctypes.c_void_p).value or 0), interface.state_address


class GeneratorRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """State of NumPy's PCG64. Numbers of 128 bits are written in hexadecimal."""

    state: str
    inc: str
    has_uint32: Literal[0, 1]
    uinteger: int
    bit_generator: Literal["PCG64"] = "PCG64"


def generator_record(state: Any) -> GeneratorRecord:
    """Returns a record of `generator.bit_generator.state` for a file."""
    numbers = state["state"]
    return GeneratorRecord(
        hex(numbers["state"]),
        hex(numbers["inc"]),
        state["has_uint32"],
        state["uinteger"],
        state["bit_generator"],
    )


def generator_state(record: GeneratorRecord) -> Any:
    """The state that `generator_record` wrote down.

    Raises:
        ValueError: numbers that no generator has.

    >>> import numpy as np
    >>> random = np.random.default_rng(1)
    >>> generator_state(generator_record(random.bit_generator.state)) == random.bit_generator.state
    True
    """
    numbers = {"state": int(record.state, 16), "inc": int(record.inc, 16)}
    if not all(0 <= number < 1 << _BITS for number in numbers.values()) or not 0 <= record.uinteger < 1 << 32:
        raise ValueError(f"generator: expected the state of a {record.bit_generator}, got {record}")
    return {
        "bit_generator": record.bit_generator,
        "state": numbers,
        "has_uint32": record.has_uint32,
        "uinteger": record.uinteger,
    }
