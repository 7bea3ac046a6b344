cimport cython
from cpython.long cimport PyLong_AsLongLongAndOverflow
from libc.string cimport memcpy, memmove
from numpy cimport (
    PyArray_CheckExact,
    PyArray_CompareLists,
    PyArray_DATA,
    PyArray_DIMS,
    PyArray_ISCARRAY_RO,
    PyArray_NDIM,
    PyArray_ScalarAsCtype,
    PyArray_STRIDE,
    PyArray_TYPE,
    ndarray,
)

from headrace.kernels.hints cimport hr_settle, hr_stream
from headrace.kernels.kinds cimport *

cdef Int _PIECE_NBYTES
cdef Int _KEPT_NBYTES

@cython.final
cdef class Column:
    cdef object key
    cdef ndarray array
    cdef object check
    cdef object _dtype
    cdef object _shape
    cdef object _native
    cdef bint _is_wide
    cdef bint _is_kept
    cdef bint _is_bool
    cdef bint _is_integer
    cdef bint _is_float32
    cdef bint _is_float64
    cdef Int _number
    cdef Int _width
    cdef Int _rows
    cdef double _most
    cdef Int _least_integer
    cdef Int _most_integer
    cdef object put(self, Int row, object value)
    cdef bint _is_written(self, Int row, object value) except -1
    cdef void _move_wide(self, unsigned char *to, unsigned char *given) noexcept nogil
    cdef bint _is_alike(self, ndarray value) noexcept
    cdef bint _is_integer_written(self, unsigned char *to, object value) except -1

@cython.final
cdef class RowColumns:
    cdef list _columns
    cpdef object put(self, Int row, object values)
    cdef bint is_written(self, Int row, object values) except -1

@cython.final
cdef class WholeArrays:
    cdef list _columns
    cdef list _arrays
    cpdef object put(self, object values)

@cython.final
cdef class LaneColumns:
    cdef WholeArrays _stage
    cdef RowColumns _wide
    cpdef object put(self, Int row, object values)
