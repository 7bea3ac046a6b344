cimport cython

from headrace.kernels.handoff cimport asking, offer
from headrace.kernels.hints cimport in_order
from headrace.kernels.kinds cimport *
from headrace.store.copying cimport place_fields
from headrace.store.layout cimport *
from headrace.store.pages.pinning cimport Pins
from headrace.store.window cimport Window, step_after

# The state of a block's lanes; commits their steps. See `commit.py`.
@cython.final
cdef class Lanes:
    cdef readonly Pins pins
    cdef readonly Window window
    cdef UInts steps
    cdef Longs episodes
    cdef Longs next_episode
    cdef readonly Longs newest
    cdef LongTable words
    cdef Ints versions
    cdef readonly Int count
    cdef public Int row
    cdef public Int stop
    cdef public Int last
    cdef public Int committed
    cdef public int version
    # Where values of rows are written: all of the store's memory, the arrays in it, and the first of these, its records.
    cdef Bytes memory
    cdef LongTable spans
    cdef Bytes records
    cdef Int record_nbytes
    cdef Bytes staged
    cdef LongTable fields
    cpdef bint is_full(self) noexcept nogil
    cpdef int take_step(self) except -1
    cpdef int take_marked(self, GivenBytes final, GivenBytes idle, bint is_staged) except -1
    cpdef int refuse(self) except -1
    cdef void take_staged(self) noexcept nogil
    cdef void commit_step(self) noexcept nogil
    cdef void clear_idle(self, GivenBytes idle) noexcept nogil
    cdef void _clear_row(self, Int row) noexcept nogil
    cdef void commit_marked(self, GivenBytes final, GivenBytes idle) noexcept nogil
    cdef void _commit_empty(self, Int lane, Int row) noexcept nogil
    cdef Int _commit_row(
        self, Int page, Int lane, Int row, bint is_first, bint is_final, Int starts
    ) noexcept nogil
    cdef void _stamp_written(self, Int page, Int steps, GivenInts versions) noexcept nogil
    cdef void _stamp_again(self, Int page, Int step, Int before) noexcept nogil
    cpdef void end_written(self, GivenLongs lanes, GivenLongs final_rows) noexcept nogil
    cpdef void commit_finals(self, GivenLongs ended, Int first) noexcept nogil
    cdef void _end_lane(self, Int lane, Int row) noexcept nogil
    cdef void _end_beside(self, Int lane, Int final) noexcept nogil
    cdef void _end_beside_row(self, Int lane, Int row, Int final) noexcept nogil
    cdef void _leave_lane(self, Int lane) noexcept nogil
    cdef bint _only_ends(self, GivenBytes final, GivenBytes idle) noexcept nogil
    cdef void _stamp(self, int version) noexcept nogil
    cdef int _last_version(self) noexcept nogil
    cdef int _version_at(self, Int row) noexcept nogil
    cdef void _turn(self) noexcept nogil
    cdef void _take_in(self, Int page, Int steps) noexcept nogil
    cdef Int _begin_rows(self, Int page, Int lane, Int row, bint is_first, Int starts) noexcept nogil
    cdef void _count(self, Int page, Int starts, Int used) noexcept nogil
