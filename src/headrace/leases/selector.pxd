cimport cython

from headrace.kernels.kinds cimport Bool, Float, Int
from headrace.leases.channel cimport Channel
from headrace.leases.poller cimport Poller

# See `selector.py`.
cdef Int _READ
cdef Int _WRITE

@cython.final
cdef class PeerSelector:
    cdef object _lock
    cdef object _thread
    cdef Int _number
    cdef set _peers
    cdef object _wanted
    cdef set _waiting
    cdef set _full
    cdef dict _listeners
    cdef list _timers
    cdef object _timer_numbers
    cdef object _left
    cdef set _changed
    cdef Poller _poller
    cdef int _wake_read
    cdef int _wake_write
    cdef object __weakref__
    cdef object _begin(self)
    cdef Float _seconds_until(self, Float then, Float now) except -1
    cdef object _make_timed_calls(self, Float now)
    cdef Bool _has_ended(self) except -1
    cdef object _make_calls(self)
    cdef list _take_sleepers(self)
    cdef object _serve_ready(self, Float timeout)
    cdef object _serve(self, object peer, Int events)
    cdef object _resume(self, object peer)
    cdef object _take_all(self, object peer)
    cdef object _take_some(self, object peer, Channel channel)
    cdef object _look_at(self, set peers)
    cdef object _forget(self, object peer)
    cdef object _listen_for(self, object peer)
