cimport cython

from headrace.kernels.kinds cimport Bool, Int
from headrace.kernels.shared_count cimport SharedCount
from headrace.leases.channel cimport Channel

# See `lone_samples.py`.
@cython.final
cdef class LoneSamples:
    cdef object _link
    cdef Channel _channel
    cdef object _lock
    cdef SharedCount _stored
    cdef bytearray _frame
    cdef Int _frame_nbytes
    cdef Int _number_at
    cdef object _samples
    cdef unsigned char *_first_sample
    cdef Int _nbytes
    cdef Int _descriptor
    cdef Int _most_open
    cdef Bool begin(self, Int sent) except -1
    cdef object end(self)
    cdef object send(self, Int number, Int row)
    cdef object _keep(self, Int row, Int taken)
