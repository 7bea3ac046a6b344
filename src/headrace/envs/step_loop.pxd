cimport cython

from headrace.kernels.row_copy cimport put_row, settle_rows
from headrace.kernels.kinds cimport *

@cython.final
cdef class StepLoop:
    cdef list _steps
    cdef object _bare
    cdef Int _count
    cdef object _rewards
    cdef float[::1] _reward
    cdef Bytes _terminated
    cdef Bytes _truncated
    cdef readonly Int env
    cdef readonly object action
    cdef readonly list ended
