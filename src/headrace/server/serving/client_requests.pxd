# See `client_requests.py`.
cdef class ClientRequests:
    cdef object _services
    cdef readonly object _sender
    cdef readonly object _samples
    cdef readonly object _queues
    cdef readonly object _weights
    cdef readonly object _writers
    cdef set _saves
    cpdef object take(self, object frame)
