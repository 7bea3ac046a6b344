cimport cython

from headrace.kernels.kinds cimport Bool, Int
from headrace.kernels.quick_lock cimport QuickRLock
from headrace.kernels.row_copy cimport put_rows
from headrace.server.batch_buffers cimport BatchBuffer, BatchBuffers

# See `queue_places.py`.
cdef Bool _HAS_GIL

cdef class QueuePlaces:
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
    cdef Bool _closed
    cdef Int _blocked_sends
    cdef tuple _watchers
    cdef object __weakref__
    cdef Bool _store(self, object values) except -1
    cpdef Int store_rows(self, object columns, Int begin, Int count, object rows=*) except *
    cpdef object announce_filled(self)
    cdef Int _store_rows(self, object columns, Int begin, Int count, object rows) except *
    cdef Int _store_some(self, object columns, Int begin, Int most) except *
    cdef Bool _store_in_place(self, object columns, Int begin, Int count, object rows) except -1
    cdef object _copy_adopted(self)
    cdef object _start_batch(self)
    cdef object _free_slot(self)
    cdef object _announce(self)
    cdef object _call_watchers(self)
