cimport cython

from headrace.kernels.kinds cimport *

@cython.final
cdef class Heap:
    cdef Longs slots
    cdef Longs positions
    cdef double sign
    cdef Doubles priorities
    cdef Longs last_updates
    cdef Int end
    cpdef void push(self, Int slot) noexcept nogil
    cpdef void moved(self, Int slot) noexcept nogil
    cpdef void remove(self, Int slot) noexcept nogil
    cdef bint _before(self, Int one, Int other) noexcept nogil
    cdef void _put(self, Int place, Int slot) noexcept nogil
    cdef Int _rise(self, Int place) noexcept nogil
    cdef void _sink(self, Int place) noexcept nogil
