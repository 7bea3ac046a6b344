from headrace.kernels.kinds cimport *
from headrace.tables.items cimport Items
from headrace.tables.layout cimport *

cdef Int _count_rows(Items items, Bytes marks) noexcept nogil
