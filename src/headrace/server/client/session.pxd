from headrace.kernels.kinds cimport Bool, Int
from headrace.server.client.link cimport Link

# See `session.py`.
cdef class Session:
    cdef readonly object access
    cdef public object timeout
    cdef readonly object peer
    cdef readonly object can_share
    cdef readonly object _samples
    cdef Int _pid
    cdef Int _forks
    cdef readonly Bool _is_closed
    cdef object _connecting
    cdef readonly Link _link
    cdef readonly object _writers
    cdef object __weakref__
    cpdef Link link(self, object timeout=*)
