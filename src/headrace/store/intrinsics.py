"""What kernels do that no loop over NumPy arrays says: instructions of the processor, and memory by its address.

Each has a twin in Python, for `NUMBA_DISABLE_JIT=1` (`jit.py`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, cast

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic
from numba.np import arrayobj
from numpy.typing import NDArray

from headrace.store.jit import Float, Int, kernel

AHEAD = 64
"""So many lines of the cache a loop asks for ahead of where it reads at random places (`prefetch`).

Asked for all at once, many are forgotten: the processor waits for some dozens at a time (bench/README.md has the
figures).
"""


def _prefetch(array: Any, place: Int) -> None:
    """Ask the processor for `array[place]`, which is soon to be read or changed; any place is fine, also none.

    A loop over random places that also computes waits for nearly each of them; one that asks for each `AHEAD` of time
    has dozens on their way (bench/README.md has the figures).
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
        # For reading, into the second cache, as data: on the way to the first one there is room for fewer.
        builder.call(hint, [address, word(0), word(2), word(1)])
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


WHOLE = 16
"""Bytes that `stream` moves at a time."""


def _stream(target: NDArray[np.uint8], source: NDArray[np.uint8]) -> None:
    """Copy as many bytes, of which there are a multiple of WHOLE, past the caches.

    For what is too large to be still there when it is read.

    An ordinary store first reads what it writes over, and throws out of the cache what is needed soon. Whoever hands
    the copy on calls `settle` before.
    """
    target[:] = source


@intrinsic
def _stream_compiled(_context: Any, target: Any, source: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        tools: Any = cgutils
        views = [
            context.make_array(kind)(context, builder, value)
            for kind, value in zip(signature.args, arguments, strict=True)
        ]
        to, begin = views[0].data, views[1].data
        count = tools.unpack_tuple(builder, views[0].shape, 1)[0]
        word, pair = ir.IntType(64), ir.VectorType(ir.IntType(64), 2)
        # The instruction wants places that WHOLE divides.
        odd = builder.and_(builder.or_(builder.ptrtoint(to, word), count), word(WHOLE - 1))
        with builder.if_else(builder.icmp_unsigned("==", odd, word(0))) as (even, other):
            with even, tools.for_range_slice(builder, word(0), count, word(WHOLE), word) as (place, _):
                read = builder.bitcast(builder.gep(begin, [place]), pair.as_pointer())
                write = builder.bitcast(builder.gep(to, [place]), pair.as_pointer())
                stored = builder.store(builder.load(read, align=1), write, align=WHOLE)
                stored.set_metadata("nontemporal", builder.module.add_metadata([ir.IntType(32)(1)]))
            with other:
                tools.raw_memcpy(builder, to, begin, count, 1)
        return context.get_dummy_value()

    return types.void(target, source), generate


stream: Callable[[NDArray[np.uint8], NDArray[np.uint8]], None] = cast(
    Any, _stream if _config.DISABLE_JIT else _stream_compiled
)


def _fence(scope: str | None) -> Callable[..., Any]:
    """What generates a fence: None is one for the whole machine."""

    def generate(context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        builder.fence("seq_cst", scope)
        return context.get_dummy_value()

    return generate


@intrinsic
def _barrier(_context: Any) -> Any:
    # For this thread alone: no instruction comes of it, only stores stay where they are.
    return types.void(), _fence("singlethread")


@intrinsic
def _settle_compiled(_context: Any) -> Any:
    return types.void(), _fence(None)


def _compiled() -> None:
    _barrier()  # type: ignore[call-arg]


def _as_written() -> None:
    """Python does one thing after the other."""


in_order = _as_written if _config.DISABLE_JIT else kernel(_compiled)
"""Called in a kernel: what is stored before is stored before whatever is stored after.

A process that is killed leaves behind what it has stored so far. Processors keep to the order of the instructions
there; compilers do not, unless they are told.
"""

settle: Callable[[], None] = cast(Any, _as_written if _config.DISABLE_JIT else _settle_compiled)
"""Called in a kernel after the last `stream`: other threads that hear of the copies see them."""
