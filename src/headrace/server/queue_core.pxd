cimport cython

from headrace.kernels.kinds cimport Bool, Int
from headrace.kernels.quick_lock cimport QuickRLock
from headrace.kernels.row_copy cimport joined, put_rows
from headrace.server.batch_buffers cimport BatchBuffer, BatchBuffers

# See `queue_core.py`.
cdef Bool _HAS_GIL

@cython.final
cdef class QueueCore:
    cdef readonly Int batch_size
    cdef readonly Int batch_nbytes
    cdef Int _slots
    cdef Bool _one_column
    cdef readonly BatchBuffers _buffers
    cdef readonly object _clock
    cdef readonly QuickRLock _lock
    cdef object _place_free
    cdef object _batch_full
    cdef Int _free
    cdef readonly object _pending
    cdef readonly BatchBuffer _open
    cdef BatchBuffer _no_batch
    cdef object _adopted
    cdef Int _started
    cdef readonly Bool has_filled
    cdef object _lent
    cdef Bool _closed
    cdef Int _batches
    cdef object _tail
    cdef Int _delivered
    cdef Int _blocked_sends
    cdef Int _senders
    cdef tuple _watchers
    cdef readonly object sessions
    cdef Int _buffers_replaced
    cdef object __weakref__
    cdef Bool _store(self, object values) except -1
    cpdef Int store_rows(self, object columns, Int begin, Int count, object rows=*) except *
    cpdef object announce_filled(self)
    cdef Int _store_rows(self, object columns, Int begin, Int count, object rows) except *
    cdef object _bytes_now(self)
    cdef Int _store_some(self, object columns, Int begin, Int most) except *
    cdef Bool _store_in_place(self, object columns, Int begin, Int count, object rows) except -1
    cdef object _copy_adopted(self)
    cdef object _start_batch(self)
    cdef object _full_batch(self)
    cdef object _take(self, BatchBuffer head, object build, Bool copy)
    cdef object _take_copied(self, BatchBuffer head, object build)
    cdef object _taken(self, BatchBuffer head)
    cdef object _free_slot(self)
    cdef object _announce(self)
    cdef object _call_watchers(self)
    cdef object _info(self, Int index)
