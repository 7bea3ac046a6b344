cimport cython
from numpy cimport PyArray_DATA, PyArray_NBYTES, ndarray

from headrace.kernels.handoff cimport ask, leave, take
from headrace.kernels.hints cimport hr_move
from headrace.kernels.kinds cimport *
from headrace.store.copying cimport SHORT

@cython.final
cdef class LookBack:
    cdef GivenLongs _backs
    cdef Int _stride
    cdef bint _is_post
    cdef bint _shows_nearest
    cdef ndarray _fill
    cdef Int _nbytes
    cdef object _dtype
    cdef tuple _shape
    @cython.locals(out=ndarray, nbytes=Int)
    cpdef object copy(self, ndarray column, GivenLongs newest, GivenLongs ages)
    cdef void _copy(
        self, unsigned char *source, Int rows, GivenLongs newest, GivenLongs ages, unsigned char *fill, unsigned char *to
    ) noexcept nogil

cdef Int _size(ndarray array) noexcept
cdef unsigned char *_bytes_of(ndarray array) noexcept
cdef void _move(unsigned char *to, Int place, unsigned char *source, Int begin, Int count) noexcept nogil
