from headrace.kernels.kinds cimport *
from headrace.tables.items.items cimport Items, is_priority
from headrace.tables.items.layout cimport *

cdef (Int, Int, Int) _first_wrong(Items items, ULong next_key, Int max_times) noexcept nogil
cdef bint keys_rise(Items items) noexcept nogil
cdef bint may_have_problems(Items items, Int max_times) noexcept nogil
cdef Int problem_of(Items items, Int slot, Int max_times) noexcept nogil
cpdef bint is_window(Int real, Int padded) noexcept nogil
