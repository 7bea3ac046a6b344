from headrace.kernels.kinds cimport Bool, Int
from headrace.leases.channel cimport Channel
from headrace.server.serving.client_requests cimport ClientRequests

# See `connection.py`.
cdef class ServedConnection:
    cdef readonly Channel channel
    cdef object _host
    cdef public Int _most_unread
    cdef Int _most_queued
    cdef Bool _is_unix
    cdef object _handshake
    cdef public ClientRequests _requests
    cdef readonly object _packed
    cdef readonly object _heartbeat
    cdef object _send_answer
    cdef readonly Bool _is_ending
    cdef Bool _has_ended
    cdef object __weakref__
    cdef Bool _is_full(self) except -1
