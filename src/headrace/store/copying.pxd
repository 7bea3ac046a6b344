from headrace.kernels.hints cimport place, settle, stream, take_fields
from headrace.kernels.kinds cimport *
from headrace.store.records cimport *

cdef void copy_fields(
    Bytes records, Int nbytes, Longs rows, LongTable table, Bytes out
) noexcept nogil
cdef bint _same_rows(LongTable table, Int field, Int other) noexcept nogil
cpdef void place_fields(
    Bytes values, LongTable table, Int lanes, Bytes records, Int nbytes, Int row
) noexcept nogil
