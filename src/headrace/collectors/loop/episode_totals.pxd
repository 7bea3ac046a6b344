cimport cython

from headrace.kernels.kinds cimport *

cpdef enum:
    GOES_ON = 0
    ENDS = 1
    MASKED = 2

@cython.final
cdef class EpisodeTotals:
    cdef Int _lanes
    cdef Doubles _returns
    cdef Longs _lengths
    @cython.locals(found=list)
    cdef list _add(self, GivenDoubles rewards, Bytes rows, GivenLongs masked, GivenLongs going_on)
