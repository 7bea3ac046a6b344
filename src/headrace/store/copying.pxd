from headrace.kernels.hints cimport move, prefetch
from headrace.kernels.kinds cimport *
from headrace.store.layout cimport AHEAD
from headrace.store.records cimport *

cdef void copy_fields(
    Bytes records, Int nbytes, Longs rows, LongTable table, Bytes out
) noexcept nogil
cdef void place_fields(
    Bytes values, LongTable table, Int lanes, Bytes records, Int nbytes, Int row
) noexcept nogil
