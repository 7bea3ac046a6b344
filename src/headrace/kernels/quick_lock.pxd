cimport cython

from headrace.kernels.kinds cimport Bool, Int
from headrace.kernels.locks cimport Lock

# See `quick_lock.py`.
@cython.final
cdef class QuickLock:
    cdef Lock _lock
    cdef object _plain
    cpdef Bool take_now(self) except -1
    cpdef object take(self)
    cpdef object give(self)
