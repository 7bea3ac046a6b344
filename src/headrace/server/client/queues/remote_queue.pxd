cimport cython

from headrace.kernels.kinds cimport Bool
from headrace.server.client.direct_sending cimport NumberedFrame
from headrace.server.client.link cimport Link
from headrace.server.client.queues.small_batches cimport SmallBatches
from headrace.server.client.reply cimport Reply
from headrace.server.client.session cimport Session

# See `remote_queue.py`.
@cython.final
cdef class _LatestRequest:
    cdef object timeout
    cdef object seconds
    cdef NumberedFrame frame

cdef class RemoteQueue:
    cdef Session _session
    cdef object _name
    cdef readonly object signature
    cdef readonly object max_in_flight
    cdef object _columns
    cdef object _node
    cdef Bool _is_bare
    cdef SmallBatches _small_batches
    cdef object _read
    cdef readonly object _stream
    cdef object _put_quickly
    cdef object _abandoned
    cdef object _abandoned_tails
    cdef _LatestRequest _latest
    cdef object __weakref__
    cdef list _arrays(self, Reply reply)
    cdef object _tree(self, list arrays)
    cdef Reply _reply(self, NumberedFrame request, object seconds, object abandoned)
