cimport cython

from headrace.kernels.kinds cimport *
from headrace.kernels.readiness cimport is_readable

@cython.final
cdef class StepMonitor:
    cdef Int _descriptor
    cdef Doubles _newest
    cdef double _looked
    cdef readonly Bool has_arrived
    @cython.locals(now=double)
    cpdef bint step_taken(self, Int transitions) except -1
