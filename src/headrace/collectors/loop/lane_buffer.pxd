cimport cython

from headrace.collectors.loop.lane_column cimport LaneColumn
from headrace.kernels.kinds cimport *

cpdef enum:
    STEPS = 0
    RESET_STEPS = 1
    BEGINS = 2
    DROPPED = 3

@cython.final
cdef class LaneBuffer:
    cdef Int _lanes
    cdef Int _depth
    cdef Int _slots
    cdef dict _observed
    cdef dict _policy
    cdef LaneColumn _reward
    cdef LaneColumn _terminated
    cdef LaneColumn _truncated
    cdef LaneColumn _versions
    cdef LaneColumn _is_reset
    cdef readonly object heads
    cdef readonly object states
    cdef readonly object is_over
    cdef readonly Int level
    cdef Int _missing
    cdef object _is_new
    cdef bint _has_new
    cdef object _found
    cdef list _steps
    cdef Longs _rows
    cdef Longs _next_rows
    # The same arrays as above, for loops.
    cdef Longs _head
    cdef Bytes _state
    cdef Bytes _over
    cdef Longs _version
    cdef Bytes _reset
    cdef Int _row(self, Int head, Int lane) noexcept
    cdef Int _find_rows(self, GivenLongs lanes) noexcept
    cdef void _advance(self, GivenLongs lanes, GivenBytes terminated, GivenBytes truncated) noexcept
