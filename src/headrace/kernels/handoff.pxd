from headrace.kernels.atomics cimport add, let_others_run, load, nanoseconds, store
from headrace.kernels.kinds cimport Int

cpdef enum:
    TIME_TO_TAKE = 200000
    TIME_TO_LEAVE = 100000

# Read at every append. See `handoff.py`, which alone changes it.
cdef Int asking
cdef Int _taken
cdef Int _inside
cdef void leave() noexcept nogil
cdef void ask() noexcept nogil
cdef void take() noexcept nogil
cdef void offer() noexcept nogil
