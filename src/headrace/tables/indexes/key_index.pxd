cimport cython

from headrace.kernels.kinds cimport *

@cython.final
cdef class KeyIndex:
    cdef ULongs keys
    cdef Longs slots
    cdef Int shift
    cdef Int mask
    cpdef void insert(self, Int slot) noexcept nogil
    cpdef Int find(self, ULong key) noexcept nogil
    cpdef void remove(self, Int slot) noexcept nogil
    cdef Int _home(self, ULong key) noexcept nogil
