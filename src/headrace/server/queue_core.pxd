cimport cython

from headrace.kernels.kinds cimport Bool, Int
from headrace.kernels.row_copy cimport joined
from headrace.server.batch_buffers cimport BatchBuffer
from headrace.server.queue_places cimport QueuePlaces

@cython.final
cdef class QueueCore(QueuePlaces):
    cdef object _lent
    cdef Int _batches
    cdef object _tail
    cdef Int _delivered
    cdef Int _senders
    cdef readonly object sessions
    cdef Int _buffers_replaced
    cdef object _bytes_now(self)
    cdef object _full_batch(self)
    cdef object _take(self, BatchBuffer head, object build, Bool copy)
    cdef object _take_copied(self, BatchBuffer head, object build)
    cdef object _taken(self, BatchBuffer head)
    cdef object _info(self, Int index)
