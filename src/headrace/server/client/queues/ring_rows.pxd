cimport cython

from headrace.kernels.kinds cimport *
from headrace.server.client.queues.lone_samples cimport LoneSamples
from headrace.store.columns cimport RowColumns

# See `ring_rows.py`.
@cython.final
cdef class RingRows:
    cdef RowColumns _columns
    cdef object _read
    cdef Int _places
    cdef Int _first
    cdef RowColumns _ring
    cdef Int _ring_places
    cdef public Int written
    cdef public Int free_until
    cdef public Int quiet_until
    cdef public Int sent
    cdef public Int full_at
    cdef public LoneSamples lone
    cpdef Bool put(self, object sample) except -1
    cdef Bool _is_collected(self, object sample) except -1
    cdef Bool _is_sent(self, object sample) except -1
    cpdef object take_over(self)
    cpdef object append(self, object values)
    cpdef object lie_in(self, RowColumns columns, Int places)
    cpdef object lie_in_ring(self)
