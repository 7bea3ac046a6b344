"""How kernels are compiled.

A kernel is a plain Python loop over NumPy arrays. Numba compiles it on its first call, without the interpreter lock
held while it runs, and keeps the result on disk. Kernels allocate nothing: scratch arrays are given to them. So they
are compiled without reference counts of arrays, and small kernels are inlined into large ones: following a lane costs
some 15 ns a row that way, and more than ten times as much without.

`NUMBA_DISABLE_JIT=1` runs the same loops as Python: that is how they are debugged and how their coverage is measured.

Numba is imported here and nowhere else in the package, so `import headrace` does not pay for it.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic
from numba.np import arrayobj
from numpy.typing import NDArray

F = TypeVar("F", bound=Callable[..., object])

# Numbers inside kernels are Python's or NumPy's, as the loop comes to them; compiled code knows one kind of each.
Int: TypeAlias = Any
Float: TypeAlias = Any
Bool: TypeAlias = Any

AHEAD = 24
"""So many rows ahead of where it is a loop asks for what it reads at random places (`prefetch`).

A processor waits for a dozen or two of lines at a time, and may forget what it is asked for beyond them; 16 to 32 take
the same time (bench/README.md has the figures).
"""

_PACKAGE = Path(__file__).parents[1]


_OPTIONS: dict[str, Any] = {
    "nogil": True,
    "cache": True,
    "error_model": "numpy",
    "forceinline": True,
    "_nrt": False,  # No reference counts: nothing is allocated.
}


def kernel(function: F) -> F:
    """Compile `function` at its first call: no interpreter lock, cached on disk, NumPy's division rules."""
    return _compile(function, _OPTIONS)


def kernel_apart(function: F) -> F:
    """As `kernel`, but not inlined: for what few calls need, and for loops that want the registers for themselves."""
    return _compile(function, {**_OPTIONS, "forceinline": False})


def _compile(function: F, options: dict[str, Any]) -> F:
    settings: Any = numba.config
    before = settings.CACHE_DIR
    settings.CACHE_DIR = _CACHE_FOLDER
    try:
        return cast(F, numba.njit(**options)(function))
    finally:
        settings.CACHE_DIR = before


def opening(function: F) -> F:
    """A function that carves arrays out of memory: written into the kernels that call it, since those return none."""
    return cast(F, numba.njit(inline="always")(function))


def _prefetch(array: Any, place: Int) -> None:
    """Ask the processor for `array[place]`, which is soon to be read or changed; any place is fine, also none.

    A loop over random places that also computes waits for nearly each of them; one that asks for all of them first has
    a dozen on their way at a time (bench/README.md has the figures).
    """


@intrinsic
def _prefetch_compiled(_context: Any, array: Any, place: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array_type, place_type = signature.args
        view = context.make_array(array_type)(context, builder, arguments[0])
        number = context.cast(builder, arguments[1], place_type, types.intp)
        tools: Any = cgutils
        stride = tools.unpack_tuple(builder, view.strides, array_type.ndim)[0]
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        address = builder.gep(builder.bitcast(view.data, byte), [builder.mul(number, stride)])
        hint = tools.get_or_insert_function(
            builder.module, ir.FunctionType(ir.VoidType(), [byte, word, word, word]), "llvm.prefetch.p0"
        )
        # For reading, to be kept in all caches, as data.
        builder.call(hint, [address, word(0), word(3), word(1)])
        return context.get_dummy_value()

    return types.void(array, place), generate


_config: Any = numba.config
prefetch: Callable[[Any, Int], None] = cast(Any, _prefetch if _config.DISABLE_JIT else _prefetch_compiled)


def _next_double(function: int, state: int) -> float:
    """The next number of a NumPy generator, in [0, 1), as `Generator.random` would give it.

    Args:
        function, state: addresses, of `bit_generator.ctypes`.
    """
    call = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_void_p)(function)
    return float(call(state))


@intrinsic
def _next_double_compiled(_context: Any, function: Any, state: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.DoubleType(), [byte]).as_pointer()
        return builder.call(builder.inttoptr(arguments[0], kind), [builder.inttoptr(arguments[1], byte)])

    return types.float64(function, state), generate


next_double: Callable[[Int, Int], Float] = cast(
    Any, _next_double if _config.DISABLE_JIT else _next_double_compiled
)


def _array_at(address: int, nbytes: int, dtype: type[np.generic]) -> NDArray[Any]:
    """The one-dimensional array that lies there; it keeps nothing alive."""
    memory: Any = (ctypes.c_char * int(nbytes)).from_address(int(address))
    return np.ndarray(nbytes // np.dtype(dtype).itemsize, dtype, memory)


@intrinsic
def _array_at_compiled(_context: Any, address: Any, nbytes: Any, dtype: Any) -> Any:
    array = types.Array(dtype.dtype, 1, "C")

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        view = context.make_array(array)(context, builder)
        item = context.get_abi_sizeof(context.get_data_type(array.dtype))
        itemsize = context.get_constant(types.intp, item)
        count = builder.udiv(context.cast(builder, arguments[1], signature.args[1], types.intp), itemsize)
        fill: Any = arrayobj.populate_array
        fill(
            view,
            data=builder.inttoptr(arguments[0], view.data.type),
            shape=(count,),
            strides=(itemsize,),
            itemsize=itemsize,
            meminfo=None,
        )
        return view._getvalue()

    return array(address, nbytes, dtype), generate


array_at: Callable[[Int, Int, type[np.generic]], NDArray[Any]] = cast(
    Any, _array_at if _config.DISABLE_JIT else _array_at_compiled
)


def _room(nbytes: int) -> NDArray[np.uint8]:
    """So many bytes, a number in the code, for a kernel to work in. Its content is arbitrary, and gone when it ends."""
    return np.empty(nbytes, np.uint8)


@intrinsic(prefer_literal=True)
def _room_compiled(_context: Any, nbytes: Any) -> Any:
    array = types.Array(types.uint8, 1, "C")

    def generate(context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        tools: Any = cgutils
        stretch = tools.alloca_once(builder, ir.ArrayType(ir.IntType(8), nbytes.literal_value))
        stretch.align = 64
        view = context.make_array(array)(context, builder)
        one = context.get_constant(types.intp, 1)
        fill: Any = arrayobj.populate_array
        fill(
            view,
            data=builder.bitcast(stretch, view.data.type),
            shape=(context.get_constant(types.intp, nbytes.literal_value),),
            strides=(one,),
            itemsize=one,
            meminfo=None,
        )
        return view._getvalue()

    return array(nbytes), generate


room: Callable[[int], NDArray[np.uint8]] = cast(Any, _room if _config.DISABLE_JIT else _room_compiled)


def _cache_folder() -> str:
    """A folder of compiled kernels for exactly these sources.

    Numba looks only at the file of the kernel itself; one that calls into a changed file would stay as it was.
    """
    stamp = hashlib.sha256(str(_PACKAGE).encode())
    for folder in ("store", "replay", "views"):
        for path in sorted((_PACKAGE / folder).glob("*.py")):
            stamp.update(path.read_bytes())
    base = os.environ.get("NUMBA_CACHE_DIR") or Path(
        os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"), "headrace"
    )
    return str(Path(base, f"kernels-{stamp.hexdigest()[:16]}"))


_CACHE_FOLDER = _cache_folder()


@kernel
def unsigned(number: Int) -> Int:
    """A number >= 0, as an index of which the compiler knows it: it need not count from the end of the array.

    Without it every access of a loop over row numbers takes three instructions more (bench/README.md has the figures).
    Not for arithmetic: with a signed number it makes a float.
    """
    return np.uint64(number)


@intrinsic
def _barrier(typing: Any) -> Any:  # noqa: ARG001 - numba's interface
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        # For this thread alone: no instruction comes of it, only stores stay where they are.
        builder.fence("seq_cst", "singlethread")
        return context.get_dummy_value()

    return types.void(), generate


def _compiled() -> None:
    _barrier()  # type: ignore[call-arg]


def _as_written() -> None:
    """Python does one thing after the other."""


in_order = _as_written if os.environ.get("NUMBA_DISABLE_JIT", "0") != "0" else kernel(_compiled)
"""Called in a kernel: what is stored before is stored before whatever is stored after.

A process that is killed leaves behind what it has stored so far. Processors keep to the order of the instructions
there; compilers do not, unless they are told.
"""
