cimport cython

from headrace.kernels.hints cimport in_order
from headrace.kernels.kinds cimport *
from headrace.store.copying cimport place_fields
from headrace.store.layout cimport *
from headrace.store.pinning cimport Pins
from headrace.store.window cimport Window, step_after

# What a block's lanes are in, beside their rows; commits their steps. See `commit.py`.
@cython.final
cdef class Lanes:
    cdef readonly Pins pins
    cdef readonly Window window
    cdef UInts steps
    cdef Longs episodes
    cdef Longs next_episode
    cdef readonly Longs newest
    cdef LongTable words
    cdef readonly Int count
    # Where values of rows are written: all of the store's memory, the arrays in it, and the first of these, its records.
    cdef Bytes memory
    cdef LongTable spans
    cdef Bytes records
    cdef Int record_nbytes
    cdef Bytes staged
    cdef LongTable fields
    cpdef void take_step(self, Int row) noexcept nogil
    cpdef void take_steps(self, Int page, Int steps) noexcept nogil
    cdef void take_staged(self, Int row) noexcept nogil
    cdef void commit_step(self, Int row) noexcept nogil
    cdef void clear_idle(self, Int row, GivenBytes idle) noexcept nogil
    cdef void _clear_row(self, Int row) noexcept nogil
    cdef void commit_marked(self, Int row, GivenBytes final, GivenBytes idle, Int committed) noexcept nogil
    cpdef void commit_finals(self, Int last, GivenLongs ended, Int first, Int committed) noexcept nogil
    cdef void _end_lane(self, Int lane, Int row, Int committed) noexcept nogil
    cdef void _take_in(self, Int page, Int steps) noexcept nogil
