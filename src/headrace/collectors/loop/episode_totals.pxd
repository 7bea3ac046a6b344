cimport cython

from headrace.kernels.kinds cimport *

# Rows of the lanes may be fields of records, which are apart.
ctypedef const float[:, :] Rewards
ctypedef const unsigned char[:, :] Flags

cpdef enum:
    ANY = 0
    GOES_ON = 1
    ENDS = 2
    MASKED = 3

@cython.final
cdef class EpisodeTotals:
    cdef Int _lanes
    cdef Doubles _returns
    cdef Longs _lengths
    cdef Bytes _kinds
    @cython.locals(kinds=Bytes, found=list, step=Int, lane=Int, row=Int, kind=Int)
    cpdef list add(self, Rewards rewards, Flags terminated, Flags truncated, GivenLongs masked, GivenLongs going_on)
