cimport cython

from headrace.kernels.kinds cimport *

@cython.final
cdef class LoopTimes:
    cdef public object clock
    cdef public double env
    cdef public double policy
    cdef public double write
    cdef public double wait
    cdef public object recorder
    cpdef object note_step(self, double begin, double acted, double stepped, double written, double restarted)
