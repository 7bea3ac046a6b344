from headrace.kernels.kinds cimport Bool, Float, Int
from headrace.kernels.quick_lock cimport QuickLock
from headrace.leases.channel cimport Channel
from headrace.server.client.direct_sending cimport DirectSending, NumberedFrame
from headrace.server.client.reply cimport Reply

# See `link.py`.
cdef class Link:
    cdef readonly Channel _channel
    cdef readonly object packer
    cdef object _unpacker
    cdef object _peer
    cdef readonly object served
    cdef readonly object blocks
    cdef object _returned
    cdef readonly object failure
    cdef readonly object lacked
    cdef readonly object views
    cdef object _forms
    cdef object _clock
    cdef readonly object _heartbeat
    cdef Int _next
    cdef QuickLock _lock
    cdef object _changed
    cdef readonly dict _waiting
    cdef dict _listeners
    cdef Bool _is_read
    cdef Bool _is_closed
    cdef Int _sleepers
    cdef readonly DirectSending direct
    cdef object _poll
    cdef Int _descriptor
    cdef object __weakref__
    cdef Int _take_numbers(self, Int count) except -1
    cdef object _send(self, object replies, object request, object payload, object parts, object descriptors)
    cpdef Reply ask(self, NumberedFrame frame)
    cpdef Bool is_answered(self, object reply, object deadline) except -1
    cpdef object look(self)
    cdef object _sleep(self, Float seconds)
    cdef object _wake(self)
    cpdef object look_for_end(self)
    cpdef Bool is_open(self) except -1
    cdef Bool _may_read(self, object reply, Float end) except -1
    cdef object _stop_reading(self)
    cpdef object read_ready(self, Float seconds)
    cdef object _take_ready(self)
    cdef object _look_for_life(self)
    cdef object _take(self, object frame)
    cdef object _answered(self, object answer, object payload)
    cdef object _settle(self, Int number, object answer, object payload, object form)
    cpdef Bool _forget(self, Reply reply) except -1

cdef Float _seconds_left(Float end) except -1
cdef Bool _is_done(object reply) except -1
