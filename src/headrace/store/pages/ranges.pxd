from headrace.kernels.kinds cimport *
from headrace.store.layout cimport LANES, USED

cdef Int _BLOCK

cdef Int _find_flagged(GivenUInts steps, LongTable ranges, Int flag, Longs rows) noexcept nogil
cdef void _take_flags(GivenUInts steps, LongTable words, Int page_rows, UInts flags) noexcept nogil
cdef UInt _flags_of(GivenUInts steps, Int begin, Int stop) noexcept nogil
