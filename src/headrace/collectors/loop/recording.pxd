cimport cython

from headrace.collectors.loop.step_monitor cimport StepMonitor
from headrace.collectors.loop.times cimport LoopTimes
from headrace.kernels.kinds cimport *
from headrace.leases.writing.page_steps cimport PageSteps

# See `recording.py`. Subclasses in Python read and set the attributes.
cdef class RecordingStepper:
    cdef public Int taken
    cdef public object going_on
    cdef public Int _limit
    cdef public Bool _set_truncated
    cdef public Bool _sees_every_step
    cdef public Int _left
    cdef public LoopTimes _times
    cdef public object _stepper
    cdef public Int _num_envs
    cdef public object _random
    cdef public object _active
    cdef public object _actor
    cdef public Bool _remembers
    cdef public object _lengths
    cdef public object _refresh
    cdef public object _first
    @cython.locals(times=LoopTimes, begin=double, acted=double, stepped=double, written=double, begun=double, values=dict)
    cpdef object step(self, PageSteps writer, Bool at_random)
    @cython.locals(count=Int)
    cpdef Int take_steps(self, PageSteps writer, Bool at_random, Int most, StepMonitor monitor) except -1
    cpdef object _step_envs(self, object actions, object next_row)
