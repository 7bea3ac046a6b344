cimport cython

from headrace.kernels.kinds cimport *
from headrace.kernels.row_copy cimport write_columns

# See `page_steps.py`. `PageWriter`, a class of Python, reads and sets the attributes.
cdef class PageSteps:
    cdef public Int page
    cdef public Int _lanes
    cdef public Int _steps_in_page
    cdef public Int _ahead
    cdef public Int _step
    cdef public Int _reported
    cdef public list _rows
    cdef public list _others_here
    cdef public list _versions
    cdef public object _marks
    cdef public object _closed
    @cython.locals(step=Int)
    cpdef object record(self, object values, object version, object resets=*, object ended=*, object last=*)
