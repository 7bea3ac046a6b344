cimport cython

from headrace.kernels.kinds cimport *
from headrace.tables.items.layout cimport *

# Decides the windows of one rule.
cdef class WindowPlan:
    cdef readonly Int length
    cdef readonly Int stride
    cdef readonly Int end
    cdef readonly Int lookahead
    cdef readonly Int total
    # Of the episode that ends: first rows of the windows that remain, and of one off the stride.
    cdef Int _start
    cdef Int _stop
    cdef Int _off_stride
    cdef LongTable spans
    cdef Int most_of_end(self, Int rows) noexcept nogil
    cdef bint completes(self, Int number, bint is_final) noexcept nogil
    cdef void begin_end(self, Int last, bint is_final) noexcept nogil
    cdef Int next_start(self) noexcept nogil
    cdef Int _last_start(self, Int regular, Int rows) noexcept nogil
    cdef void _note(self, Int place, Int start, Int last) noexcept nogil
