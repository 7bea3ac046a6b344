cimport cython

from headrace.kernels.kinds cimport *
from headrace.store.layout cimport *
from headrace.store.pinning cimport Pins
from headrace.store.window cimport Window, step_after
from headrace.tables.layout cimport *

# Cuts windows by one rule and writes them down.
@cython.final
cdef class Cutter:
    cdef readonly Pins pins
    cdef readonly Window window
    cdef readonly Int length
    cdef readonly Int stride
    cdef readonly Int end
    cdef readonly Int lookahead
    # Of the windows: int64[capacity] first rows, uint32[3 * capacity] shapes, int64[capacity] lanes; how many.
    cdef Longs rows
    cdef UInts shapes
    cdef Longs lanes
    cdef readonly Int total
    cdef Doubles priorities
    cdef void cut_block(self, Int page, Int steps) noexcept nogil
    cdef void cut_final(self, Int row, Int lane) noexcept nogil
    cdef void cut_end(self, Int row, Int lane) noexcept nogil
