from headrace.kernels.kinds cimport *
from headrace.tables.items.items cimport Items
from headrace.tables.items.layout cimport *

cdef Int _copy_items(Items old, Items new) noexcept nogil
cdef void _copy_ring(Items old, Items new, Int count) noexcept nogil
