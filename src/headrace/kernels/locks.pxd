# Locks of Python's own kind, which a thread takes and gives without the interpreter lock.
from headrace.kernels.kinds cimport Int

cdef extern from *:
    """
    #include "pythread.h"
    /* The wait ends early if a signal comes. */
    #define hr_acquire_within(lock, microseconds) \\
        ((long long)PyThread_acquire_lock_timed((lock), (PY_TIMEOUT_T)(microseconds), 1))
    """
    ctypedef void *Lock "PyThread_type_lock"
    Int TAKEN_LOCK "PY_LOCK_ACQUIRED"
    Lock allocate_lock "PyThread_allocate_lock"() noexcept
    void free_lock "PyThread_free_lock"(Lock lock) noexcept
    void release_lock "PyThread_release_lock"(Lock lock) noexcept nogil
    Int thread_number "PyThread_get_thread_ident"() noexcept nogil
    Int acquire_within "hr_acquire_within"(Lock lock, Int microseconds) noexcept nogil
