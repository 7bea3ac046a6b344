cimport cython

from headrace.kernels.hints cimport prefetch, value_if
from headrace.kernels.kinds cimport *

@cython.final
cdef class SumTree:
    cdef Doubles nodes
    cdef Longs levels
    cdef Longs parents
    cdef Int num_levels
    cpdef double total(self) noexcept nogil
    # For `count` uniform numbers from `uniforms[first]` on, overwritten: slots to `slots[to:]`.
    cdef void find(self, Doubles uniforms, Int first, Longs slots, Int to, Int count) noexcept nogil
    # Recompute the parents of `changed[first : first + count]`.
    cdef void refresh(self, Longs changed, Int first, Int count) noexcept nogil
