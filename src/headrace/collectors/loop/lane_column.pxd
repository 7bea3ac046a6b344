cimport cython
from libc.string cimport memcpy, memset
from numpy cimport PyArray_DATA, PyArray_ISCARRAY_RO, PyArray_NBYTES, PyArray_TYPE, ndarray

from headrace.kernels.kinds cimport *

@cython.final
cdef class LaneColumn:
    cdef readonly ndarray array
    cdef Int _number
    cdef Int _width
    cpdef object put(self, Longs rows, Int count, ndarray given)
    cdef bint _is_written(self, Longs rows, Int count, ndarray given) except -1
    cdef void clear(self, Int row) noexcept
