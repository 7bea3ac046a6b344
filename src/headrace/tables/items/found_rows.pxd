from headrace.kernels.kinds cimport *
from headrace.store.layout cimport ENDED, FINAL, LANES, LINKED, EMPTY, REFERENCES, USED
from headrace.store.pages.pinning cimport Pins
from headrace.tables.items.items cimport Items, LARGEST, is_priority
from headrace.tables.items.layout cimport *
from headrace.tables.items.recovery cimport keys_rise, may_have_problems, problem_of

cdef Int _BLOCK

cdef (Int, Int) _pin_found(Items items, GivenBytes has_empty, ULong next_key, Int max_times) noexcept nogil
cdef bint _pin_block(
    Items items, GivenBytes has_empty, Int start, Int stop, ULong least, ULong next_key
) noexcept nogil
cdef bint _are_between(Items items, Int start, Int stop, Int first, Int last) noexcept nogil
cdef bint _some_empty(Items items, Int start, Int stop) noexcept nogil
cdef bint _are_priorities(Items items, Int start, Int stop) noexcept nogil
cdef (Int, Int) _pin_each(
    Items items, Int start, Int stop, ULong least, ULong next_key, Int max_times
) noexcept nogil
cdef Int _remove_broken(Items items) noexcept nogil
cdef bint _is_used(Pins pins, Int row) noexcept nogil
cdef bint _is_there(Pins pins, Int row, Int real, Int lookahead) noexcept nogil
cdef bint _is_whole(Items items, Int slot) noexcept nogil
cdef bint _leads_back(Pins pins, Int row) noexcept nogil
