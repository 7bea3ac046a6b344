cimport cython

from headrace.kernels.row_copy cimport put_row
from headrace.kernels.kinds cimport *
from numpy cimport (
    NPY_INT64, PyArray_CheckExact, PyArray_GETPTR1, PyArray_ISBEHAVED_RO, PyArray_NDIM, PyArray_ToScalar, PyArray_TYPE, ndarray,
)

cdef list _SMALL

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

@cython.locals(column=ndarray)
cdef object _element(object values, Int place)
