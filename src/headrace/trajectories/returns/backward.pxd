cimport cython

from headrace.kernels.kinds cimport Doubles, GivenDoubles, Int

cdef Int _TOGETHER

cdef void run_backward_without_lock(Doubles values, GivenDoubles factors, Int rows, Int steps) noexcept nogil
