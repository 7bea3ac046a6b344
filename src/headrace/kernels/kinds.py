"""The types of kernels: numbers, and arrays whose entries lie side by side in memory.

A kernel is a plain Python file with a `.pxd` beside it. The file says what is done and is all that Python needs; the
`.pxd` tells Cython the types, and which functions are called from kernels alone. The names here stand for the same in
both: `kinds.pxd` has their types in C.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Int: TypeAlias = int
Float: TypeAlias = float
Bool: TypeAlias = bool
UInt: TypeAlias = int
ULong: TypeAlias = int

Doubles: TypeAlias = NDArray[np.float64]
Longs: TypeAlias = NDArray[np.int64]
LongTable: TypeAlias = NDArray[np.int64]
Ints: TypeAlias = NDArray[np.int32]
UInts: TypeAlias = NDArray[np.uint32]
UIntTable: TypeAlias = NDArray[np.uint32]
ULongs: TypeAlias = NDArray[np.uint64]
# Flags too: a `bool` of NumPy is a byte.
Bytes: TypeAlias = NDArray[np.uint8] | NDArray[np.bool_]
ByteTable: TypeAlias = NDArray[np.uint8] | NDArray[np.bool_]

# Of an argument that is only read: it may be an array that must not be written.
GivenDoubles: TypeAlias = NDArray[np.float64]
GivenLongs: TypeAlias = NDArray[np.int64]
GivenInts: TypeAlias = NDArray[np.int32]
GivenUInts: TypeAlias = NDArray[np.uint32]
GivenUIntTable: TypeAlias = NDArray[np.uint32]
GivenULongs: TypeAlias = NDArray[np.uint64]
GivenBytes: TypeAlias = NDArray[np.uint8] | NDArray[np.bool_]
