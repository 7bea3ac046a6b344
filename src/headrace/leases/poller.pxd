cimport cython

from headrace.kernels.kinds cimport Float, Int, Longs
from headrace.kernels.quiet_condition cimport WaitersLock

# See `poller.py`.
@cython.final
cdef class Poller:
    cdef object _selector
    cdef dict _keys
    cdef Int _descriptor
    cdef Longs _found
    cpdef list wait(self, Float seconds, list[WaitersLock] sleepers)
