cimport cython

from headrace.kernels.kinds cimport Bool, Int, Longs

# See `shared_count.py`.
@cython.final
cdef class SharedCount:
    cdef Longs _memory
    cpdef Int get(self)
    cpdef object set(self, Int number)
    cpdef Bool is_reached(self, Int number, Int most_nanoseconds)
