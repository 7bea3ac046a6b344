cimport cython

from headrace.kernels.kinds cimport *

@cython.final
cdef class EpisodeNumbering:
    cdef Int _lanes
    cdef object _source
    cdef Longs _ids
    cdef Longs _lengths
    cdef void _number(
        self, GivenBytes starts, GivenBytes masked, Int next_id, Longs ids, Longs positions
    ) noexcept
