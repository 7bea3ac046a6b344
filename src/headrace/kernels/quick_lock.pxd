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

@cython.final
cdef class QuickRLock:
    cdef QuickLock _inner
    cdef Int _owner
    cdef Int _depth
    cpdef object take(self)
    cpdef object give(self)

cdef Int _this_thread() noexcept
