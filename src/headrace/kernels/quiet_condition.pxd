cimport cython

from headrace.kernels.kinds cimport Bool, Float, Int
from headrace.kernels.locks cimport Lock

# See `quiet_condition.py`.
@cython.final
cdef class WaitersLock:
    cdef Lock _lock
    cpdef Bool acquire_within(self, Float seconds) except -1
    cpdef object release(self)
