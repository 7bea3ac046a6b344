cimport cython

from headrace.kernels.hints cimport prefetch
from headrace.kernels.kinds cimport *
from headrace.store.layout cimport ENDED, FINAL, LANES
from headrace.store.window cimport Window

@cython.final
cdef class GoalRows:
    cdef Window window
    cdef bint of_all
    cdef bint of_last
    cdef bint is_post
    cdef void _read_ahead(self, Int row) noexcept nogil
    cdef Int _goal_row(self, Int row, double uniform) noexcept nogil
