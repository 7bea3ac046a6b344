from headrace.kernels.kinds cimport Bool
from headrace.server.queue_core cimport QueueCore

# See `served_queue.py`.
cdef class ServedQueue:
    cdef readonly QueueCore core
    cdef readonly tuple columns
    cdef readonly object layout
    cdef readonly object block_layout
    cdef object _selector
    cdef object _takers
    cdef object _tail_takers
    cdef object _senders
    cdef Bool _is_called
    cdef object _alarm
    cdef object __weakref__
    cpdef object serve(self)
    cpdef object announce_filled(self, Bool is_told)
    cpdef object take_now(self, object draw)
    cdef object _store_waiting(self)
    cdef object _deliver_tail(self)
    cdef object _deliver(self)
