from headrace.kernels.kinds cimport Bool, Int

# See `batch_buffers.py`. Subclasses in Python replace the methods that are `cpdef`.
cdef class BatchBuffer:
    cdef list _memory
    cdef object _rows
    cdef list _shapes
    cdef readonly list columns
    cdef public list done
    cdef readonly list is_own
    cdef public Bool is_small
    cdef readonly object places
    cdef object __weakref__
    cpdef open(self)
    cpdef bint is_reusable(self) except -1

cdef class Lease:
    cdef readonly BatchBuffer buffer
    cdef list _dead
    cdef list _watched
    cdef object __weakref__

cdef class BatchBuffers:
    cdef list _specs
    cdef Int _batch_size
    cdef Int _keep
    cdef readonly object _unused
    cdef readonly set _leases
    cdef object __weakref__
    cpdef provide(self, Int count)
    cpdef BatchBuffer get(self)
    cpdef put_back(self, BatchBuffer buffer)
