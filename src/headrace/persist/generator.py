"""The state of a replay's random generator as a record for files."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

_BITS = 128


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
    """Returns the state in a record of `generator_record`.

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
