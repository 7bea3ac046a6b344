cimport cython
from numpy.random cimport bitgen_t

from headrace.kernels.kinds cimport Doubles, Float, Int

@cython.final
cdef class Numbers:
    cdef object _generator
    cdef bitgen_t *_bits
    cdef double next(self) noexcept nogil
    cdef void fill(self, Doubles numbers, Int begin, Int end) noexcept nogil
