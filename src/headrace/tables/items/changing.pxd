from headrace.kernels.hints cimport prefetch
from headrace.kernels.kinds cimport *
from headrace.store.layout cimport AHEAD
from headrace.store.pages.pinning cimport Pins
from headrace.tables.items.items cimport Items, is_priority
from headrace.tables.items.layout cimport *

cdef Int _update(Items items, GivenULongs keys, GivenDoubles priorities) noexcept nogil
cdef bint _are_priorities(GivenDoubles priorities) noexcept nogil
cdef void _likely_slots(Items items, GivenULongs keys) noexcept nogil
