cimport cython

from headrace.kernels.kinds cimport Bool, Int
from headrace.kernels.locks cimport Lock

# See `quick_lock.py`.
cdef class ThreadingNames:
    cpdef object take(self)
    cpdef object give(self)

@cython.final
cdef class QuickLock(ThreadingNames):
    cdef Lock _lock
    cdef object _plain
    cpdef Bool take_now(self) except -1

@cython.final
cdef class QuickRLock(ThreadingNames):
    cdef QuickLock _inner
    cdef Int _owner
    cdef Int _depth

cdef Int _this_thread() noexcept
