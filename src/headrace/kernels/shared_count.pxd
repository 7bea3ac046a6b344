cimport cython

from headrace.kernels.kinds cimport Int, Longs

# See `shared_count.py`.
@cython.final
cdef class SharedCount:
    cdef Longs _memory
    cpdef Int get(self)
    cpdef object set(self, Int number)
