cimport cython

from headrace.kernels.hints cimport prefetch
from headrace.kernels.kinds cimport *
from headrace.store.layout cimport *

@cython.final
cdef class Window:
    cdef LongTable pages
    cdef UInts steps
    cdef UInts links
    cdef UInts start_rows
    cdef Longs start_ids
    cdef Longs freed
    cdef readonly Int page_rows
    cpdef Int page_of(self, Int row) noexcept nogil
    cdef Int word(self, Int row) noexcept nogil
    cdef Int link(self, Int row) noexcept nogil
    cpdef (Int, Int) walk(self, Int row, Int offset) noexcept nogil
    cdef (Int, Int) _walk_pages(self, Int row, Int page, Int offset) noexcept nogil
    cpdef Int follow(self, Int row, Int offset) noexcept nogil
    cdef Int _follow_back(self, Int row, Int word, Int distance) noexcept nogil
    cpdef Int oldest(self, Int row, Int distance) noexcept nogil
    cpdef Int newest(self, Int row, Int distance) noexcept nogil
    cpdef Int reach(self, Int row, Int direction) noexcept nogil
    cpdef Int row_after(self, Int row) noexcept nogil
    cpdef Int place_in_lane(self, Int row) noexcept nogil
    cpdef Int episode_id(self, Int row) noexcept nogil
    cdef void _write_window(self, Int row, Int count, LongTable rows, Int item) noexcept nogil
    cdef void rows_of_one_length(self, Longs starts, Int count, Int length, Longs rows, Int to) noexcept nogil
    cdef Int resolve_into(
        self, Longs starts, Int first, Int count, Longs offsets, Int begin, Int width, bint is_post,
        Longs rows, Bytes known, Int to,
    ) noexcept nogil
    cdef void _ask_for(self, Int row, Int offset) noexcept nogil
    cdef (Int, Int) _edge(self, Int start, Int offset, Int furthest, bint is_post) noexcept nogil

cpdef Int step_after(Int step, Int count) noexcept nogil
cdef bint _is_step(Int word, Int step) noexcept nogil
