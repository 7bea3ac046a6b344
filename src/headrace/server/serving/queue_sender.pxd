from headrace.kernels.kinds cimport Bool, Int
from headrace.server.queue_core cimport QueueCore
from headrace.server.serving.served_queue cimport ServedQueue

# See `queue_sender.py`. Tests replace `take` and `_note_stored` in a subclass.
cdef class QueueSender:
    cdef ServedQueue _served
    cdef QueueCore _core
    cdef object _layout
    cdef object _session
    cdef Int _places
    cdef object _send
    cdef object _shared
    cdef readonly object _awaited
    cdef object _waiting
    cdef Int _received
    cdef public Int _stored
    cdef Int _places_taken
    cdef Int _stored_alone
    cdef Bool _is_closed
    cdef Int _sample_nbytes
    cdef bytearray _copies
    cdef list _columns_of_copies
    cpdef object take(self, object request, object payload)
    cdef object _keep(self, object samples)
    cdef object _located(self, object request, Int first, Int count, object payload)
    cdef list _copied(self, object payload, Int nbytes)
    cdef object _ring_rows(self, Int begin, Int count)
    cdef Int _store_again(self, object samples) except *
    cdef Int _store(self, object number, Int last, object columns, Int begin, Int count, object rows) except *
    cdef object _note_batches(self, Int last, Int stored)
    cpdef object _note_stored(self, object number, Int last)
