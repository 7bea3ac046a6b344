cimport cython

from headrace.kernels.kinds cimport Bool, Int
from headrace.kernels.shared_count cimport SharedCount
from headrace.server.client.direct_sending cimport DirectSending, NumberedFrame
from headrace.server.client.link cimport Link

# See `lone_samples.py`.
@cython.final
cdef class LoneSamples:
    cdef Link _link
    cdef DirectSending _direct
    cdef SharedCount _stored
    cdef NumberedFrame _frame
    cdef object _samples
    cdef unsigned char *_first_sample
    cdef Int _nbytes
    cdef Int _most_open
    cdef Int _open
    cdef Int _sent_at
    cdef public Int least_pause
    cpdef object note_sent(self)
    cdef Bool begin(self, Int sent) except -1
    cdef object end(self)
    cdef object send(self, Int number, Int row)
