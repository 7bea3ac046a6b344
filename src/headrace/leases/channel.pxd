from headrace.kernels.kinds cimport Bool, Int, Ints
from headrace.kernels.quick_lock cimport QuickLock
from headrace.leases.frames cimport FrameReader, encoded_head
from headrace.leases.unsent cimport Unsent

# See `channel.py`. Subclasses in Python replace the methods that are `cpdef`; `_held` is replaced by a test.
cdef class Channel:
    cdef readonly object _socket
    cdef Bool _passes_descriptors
    cdef QuickLock _sending
    cdef readonly FrameReader _reader
    cdef readonly Unsent _unsent
    cdef Bool _has_greeted
    cdef Bool _is_held
    cdef Bool _is_due
    cdef public object _held
    cdef Int _held_nbytes
    cdef public Int bytes_in
    cdef public Int bytes_out
    cdef Ints _arrived
    cdef object __weakref__
    cdef object _pieces(self, object messages, object payload, object parts, object descriptors)
    cdef object _hold_back(self, object messages)
    cdef bytes _take_held(self)
    cdef object _send_held(self)
    cdef bytes _framed(self, object messages, object payload, object descriptors)
    cdef bytes _greeted(self, object frames)
    cpdef Bool _send_unsent(self) except -1
    cpdef Int _send_at_once(self, object pieces) except -1
    cpdef Int _send_some(self, object pieces, object descriptors, Int flags) except -1
    cdef Int _send_bytes(self, bytes data) except -1
    cpdef Bool read_ready(self) except -1
    cpdef object next_frame(self)
    cpdef Bool _read(self, Int flags) except -1
    cdef Bool _read_small(self) except -1
    cdef object _feed(self, bytes data, object descriptors)
    cpdef object hold(self)
    cpdef Bool keeps(self, object message) except *
    cpdef object send_held(self)

cdef Int _READ_NBYTES
cdef Int _AT_ONCE

cdef Bool _is_compiled() noexcept
cdef Int _nbytes(object pieces) except -1
