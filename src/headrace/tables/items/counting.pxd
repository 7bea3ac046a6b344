from headrace.kernels.kinds cimport *
from headrace.tables.items.items cimport Items
from headrace.tables.items.layout cimport *

cdef Int _count_rows(Items items, Bytes marks) noexcept nogil
