cimport cython

from headrace.kernels.kinds cimport *

@cython.final
cdef class Heap:
    cdef Longs slots
    cdef Longs places
    cdef double sign
    cdef Doubles priorities
    cdef Longs touches
    cpdef void push(self, Int slot) noexcept nogil
    cpdef void moved(self, Int slot) noexcept nogil
    cpdef void remove(self, Int slot) noexcept nogil
