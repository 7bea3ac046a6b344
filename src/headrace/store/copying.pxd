from headrace.kernels.handoff cimport ask, leave, take
from headrace.kernels.hints cimport move, place, prefetch, store_fence, stream, take_fields
from headrace.kernels.kinds cimport *
from headrace.store.records cimport *

cpdef enum:
    SHORT = 65536
    ROWS_AHEAD = 2
    PAGES_AHEAD = 8
    PAGE = 4096

cdef void copy_fields(
    Bytes records, Int nbytes, Longs rows, LongTable table, Bytes out
) noexcept nogil
cdef bint _same_rows(LongTable table, Int field, Int other) noexcept nogil
cdef void _take_rows(GivenBytes column, Int nbytes, GivenLongs rows, Bytes out) noexcept nogil
cdef void _find_pages(Bytes out, Int begin, Int nbytes) noexcept nogil
cpdef void place_fields(
    Bytes values, LongTable table, Int lanes, Bytes records, Int nbytes, Int row
) noexcept nogil
