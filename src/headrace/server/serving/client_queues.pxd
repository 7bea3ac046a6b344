from headrace.kernels.kinds cimport Int
from headrace.server.serving.served_queue cimport ServedQueue

# See `client_queues.py`. Tests replace `take` in a subclass.
cdef class ClientQueues:
    cdef object _queues
    cdef Int _most_nbytes
    cdef Int _most_small_nbytes
    cdef object _sender
    cdef object _in_place
    cdef readonly dict _senders
    cdef readonly dict _takers
    cpdef object take(self, object request, object frame)
    cdef object _opened(self, object request)
    cdef object _check_nbytes(self, str what, Int nbytes)
    cdef object _take_batch(self, object request, ServedQueue served)
    cdef object _draw_of(self, ServedQueue served)
    cdef object _deliver(self, Int number, ServedQueue served, object batch, object info)
