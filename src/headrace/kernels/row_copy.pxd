from headrace.kernels.hints cimport hr_move, hr_settle, hr_stream
from headrace.kernels.kinds cimport *
from numpy cimport (
    PyArray_CheckExact, PyArray_CompareLists, PyArray_DATA, PyArray_DIM, PyArray_DIMS, PyArray_ISCARRAY,
    PyArray_ISCARRAY_RO,
    PyArray_ISNOTSWAPPED, PyArray_ISWRITEABLE, PyArray_ITEMSIZE, PyArray_NBYTES, PyArray_NDIM, PyArray_STRIDE, PyArray_TYPE,
    PyTypeNum_ISNUMBER, ndarray,
)

cpdef enum:
    STREAMED_ROW = 4096
    STREAMED_STEP = 131072
    MOST_PUT = 16384

cpdef bint write_row(ndarray column, Int row, object value, Int step_rows) except -1
cpdef bint put_row(ndarray column, Int row, object value, Int step_rows) except -1
cpdef bint put_rows(ndarray column, Int row, ndarray values, Int begin, Int count) except -1
cpdef void settle_rows() noexcept
cpdef void write_columns(list columns, Int row, object values) except *
cpdef bytearray joined(list columns)
cdef bint _is_copied(ndarray column, Int row, ndarray value, Int step_rows) except -1
