from headrace.kernels.kinds cimport *
from headrace.store.layout cimport ENDED, FINAL, LANES, LINKED, PADDING, REFERENCES, USED
from headrace.store.pages.pinning cimport Pins
from headrace.tables.items.items cimport Items
from headrace.tables.items.layout cimport *

cdef Int _BLOCK
cdef double _LARGEST

cdef (Int, Int, Int) _first_wrong(Items items, ULong next_key, Int max_times) noexcept nogil
cdef bint _should_rise(Items items) noexcept nogil
cdef bint _has_more(Items items, Int max_times) noexcept nogil
cdef Int _problem(Items items, Int slot, Int max_times) noexcept nogil
cdef bint _is_priority(double priority) noexcept nogil
cpdef bint is_window(Int real, Int invented) noexcept nogil
cdef (Int, Int) _pin_found(Items items, GivenBytes padded, ULong next_key, Int max_times) noexcept nogil
cdef bint _pin_block(
    Items items, GivenBytes padded, Int start, Int stop, ULong least, ULong next_key
) noexcept nogil
cdef bint _are_between(Items items, Int start, Int stop, Int first, Int last) noexcept nogil
cdef bint _some_padding(Items items, Int start, Int stop) noexcept nogil
cdef bint _are_priorities(Items items, Int start, Int stop) noexcept nogil
cdef (Int, Int) _pin_each(
    Items items, Int start, Int stop, ULong least, ULong next_key, Int max_times
) noexcept nogil
cdef void _pin_items(Items items, Int change) noexcept nogil
cdef Int _remove_broken(Items items) noexcept nogil
cdef bint _is_used(Pins pins, Int row) noexcept nogil
cdef bint _is_there(Pins pins, Int row, Int real, Int lookahead) noexcept nogil
cdef bint _is_whole(Pins pins, Int row, Int real, Int lookahead) noexcept nogil
cdef bint _leads_back(Pins pins, Int row) noexcept nogil
