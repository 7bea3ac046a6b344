cimport cython

from headrace.kernels.hints cimport prefetch, value_within
from headrace.kernels.kinds cimport *
from headrace.store.layout cimport AHEAD
from headrace.tables.items.layout cimport CHILD_BITS, CHILDREN, SUMMED

@cython.final
cdef class SumTree:
    cdef Doubles nodes
    cdef Longs levels
    cdef Longs parents
    cdef Int num_levels
    cpdef double total(self) noexcept nogil
    # For `count` uniform numbers from `uniforms[first]` on, overwritten: slots to `slots[to:]`.
    cpdef void find(self, Doubles uniforms, Int first, Longs slots, Int to, Int count) noexcept nogil
    # Recompute the parents of `changed[first : first + count]`.
    cpdef void refresh(self, Longs changed, Int first, Int count) noexcept nogil
    cpdef void rebuild(self) noexcept nogil
    cdef Int _sums_at(self, Int level) noexcept nogil
    cdef Int _num_parents(self, Int level) noexcept nogil
    cdef void _renew(self, Int level, Int parent) noexcept nogil
    cdef double _sum(self, Int first) noexcept nogil
    cdef double _sum_up(self, Int first, Int sums) noexcept nogil
    cdef void _ask_for(self, Int level, Int parent) noexcept nogil

cdef void _descend_sums(
    Doubles nodes, Int level, Int sums_at, Doubles remaining, Int first, Longs slots, Int to, Int count
) noexcept nogil
cdef void _descend(Doubles nodes, Int level, Doubles remaining, Int first, Longs slots, Int to, Int count) noexcept nogil
cdef Int _how_many(double remaining, double one, double two, double three) noexcept nogil
cdef double _largest_within(double remaining, double one, double two, double three) noexcept nogil
cdef Int _nearest(Doubles nodes, Int family, Int child) noexcept nogil
