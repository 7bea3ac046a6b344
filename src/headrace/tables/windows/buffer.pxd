cimport cython

from headrace.kernels.kinds cimport *
from headrace.store.layout cimport *
from headrace.store.pages.pinning cimport Pins
from headrace.store.window cimport Window, step_after
from headrace.tables.items.layout cimport *
from headrace.tables.windows.plan cimport WindowPlan

# Finds the windows of one rule in committed rows, and writes them down.
@cython.final
cdef class WindowBuffer(WindowPlan):
    cdef readonly Pins pins
    cdef readonly Window window
    cdef readonly bint is_every_row
    cdef Int kept
    cdef readonly object step_shape
    cdef readonly object priorities
    cdef Doubles priority
    # Of the windows: int64[capacity] first rows, uint32[3 * capacity] shapes; the same arrays for Python.
    cdef Longs rows
    cdef UInts shapes
    cdef object _rows
    cdef object _shapes
    # Of each lane whose windows go on over the ends of episodes: its newest rows, how many there were, whether it waits.
    cdef LongTable stream_rows
    cdef Longs stream_counts
    cdef Bytes stream_waits
    # Before the others: with the lock of Python, since it may reserve memory.
    cpdef int begin(self, Int rows, Int ends) except -1
    cpdef Int most(self, Int rows, Int ends) noexcept nogil
    cdef int _reserve(self, Int capacity) except -1
    cdef void find_in_block(self, Int page, Int steps) noexcept nogil
    cdef void find_at_end(self, Int row) noexcept nogil
    cdef void find_in_step(self, Int page, Int first) noexcept nogil
    cdef void _find_transitions(self, Int page, Int first, Int count) noexcept nogil
    cdef void _find_at_linked(self, Int first, Int lanes) noexcept nogil
    cdef void _extend(self, Int lane, Int row, Int word) noexcept nogil
    cdef void _wait(self, Int lane) noexcept nogil
    cpdef void end_streams(self, GivenLongs lanes) noexcept nogil
    cpdef bint completes_a_stream(self) noexcept nogil
    cdef void _find_remaining(self, Int row) noexcept nogil
    cdef void _find_at_row(self, Int row, Int word, Int page, Int before, Int lanes) noexcept nogil
    cdef void _emit(self, Int row, Int last, Int start) noexcept nogil
    cdef void _write(self, Int start, Int real, Int padded) noexcept nogil
    cdef void _write_shape(self, Int place, Int real, Int padded) noexcept nogil

cdef Int _word_after(Int word) noexcept nogil
