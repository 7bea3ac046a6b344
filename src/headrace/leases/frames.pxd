cimport cython

from headrace.kernels.kinds cimport Bool, Int

# See `frames.py`.
cdef Int _HEADER_NBYTES
cdef Int _DIRECT_NBYTES

@cython.final
cdef class FrameReader:
    cdef object _decode_greeting
    cdef object _decode
    cdef Int _largest_message
    cdef Int _largest_payload
    cdef bytearray _bytes
    cdef object _descriptors
    cdef Bool _has_header
    cdef Int _length
    cdef Int _count
    cdef Int _payload
    cdef object _large
    cdef Int _received
    cdef Int _latest
    cdef Bool _was_greeted
    cpdef object expect(self, object messages, Int largest_message, Int largest_payload)
    cpdef object feed(self, bytes data, object descriptors)
    cpdef object received(self, Int nbytes)
    cpdef object take(self)
    cdef object _take(self)
    cdef object _begin_large(self, Int begin, Int payload)
    cdef object _decoded(self, Int end)
    cdef Bool _takes_header(self) except *
    cdef object _check_header(self)

cpdef bytes encoded_head(object message, Int payload_nbytes, Int descriptors=*)
