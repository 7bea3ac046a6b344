from headrace.kernels.kinds cimport *
from headrace.tables.items.items cimport Items
from headrace.tables.items.layout cimport *

cdef Int _mark_rows(Items items, Int slot, Bytes marks) noexcept nogil
