cimport cython

from headrace.kernels.kinds cimport *

@cython.final
cdef class EpisodeTotals:
    cdef Int _lanes
    cdef Doubles _returns
    cdef Longs _lengths
    cdef Int _add(
        self, GivenDoubles rewards, GivenBytes ended, GivenBytes took, Doubles returns, Longs lengths
    ) noexcept
