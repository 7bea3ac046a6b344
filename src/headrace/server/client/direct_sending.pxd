cimport cython

from headrace.kernels.kinds cimport Bool, Int
from headrace.kernels.quick_lock cimport QuickLock
from headrace.leases.channel cimport Channel

# See `direct_sending.py`.
@cython.final
cdef class NumberedFrame:
    cdef readonly object message
    cdef bytearray _frame
    cdef unsigned char *_bytes
    cdef Int _nbytes
    cdef Int _number_at
    cdef void set_number(self, Int number) noexcept

@cython.final
cdef class DirectSending:
    cdef Channel _channel
    cdef QuickLock _lock
    cdef Int _descriptor
    cdef Bool _is_possible
    cdef Bool begin(self) except -1
    cdef object end(self)
    cdef object send(self, NumberedFrame frame, unsigned char *payload, Int nbytes, object rows, Int row)
