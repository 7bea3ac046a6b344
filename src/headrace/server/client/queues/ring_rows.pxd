cimport cython

from headrace.kernels.kinds cimport *
from headrace.store.columns cimport RowColumns

# See `ring_rows.py`.
@cython.final
cdef class RingRows:
    cdef RowColumns _columns
    cdef object _read
    cdef Int _places
    cdef Int _first
    cdef RowColumns _ring
    cdef Int _ring_places
    cdef public Int written
    cdef public Int free_until
    cdef public Int quiet_until
    cpdef Bool put(self, object sample) except -1
    cpdef object append(self, object values)
    cpdef object lie_in(self, RowColumns columns, Int places)
    cpdef object lie_in_ring(self)
