cimport cython

from headrace.kernels.kinds cimport Bool, Int

# See `reply.py`.
@cython.final
cdef class Reply:
    cdef public object answer
    cdef public object payload
    cdef public object form
    cdef public object blocks
    cdef public object error
    cdef public Bool is_done
    cdef readonly Int number
    cdef readonly object owner
    cpdef object fail(self, BaseException error)
    cpdef object result(self)
