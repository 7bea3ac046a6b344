# The present time, as `monotonic.py` tells it.
from headrace.kernels.atomics cimport nanoseconds
from headrace.kernels.kinds cimport Float

cdef inline Float monotonic() noexcept nogil:
    return nanoseconds() * 1e-9
