cimport cython

from headrace.kernels.hints cimport move
from headrace.kernels.kinds cimport *
from headrace.store.copying cimport SHORT, copy_fields
from headrace.store.window cimport Window
from headrace.tables.items.drawing cimport draw_all
from headrace.tables.items.items cimport Items
from headrace.tables.items.layout cimport FLAGS, HAS_SEQUENCES, PADDED, LOOKAHEAD, REAL, ROW, STREAM
from headrace.views.returns cimport Returns

ctypedef float[::1] Singles

cpdef enum:
    BEGIN = 0
    OFFSETS = 1
    ACTING_GIVES = 2
    PLACE = 3
    STARTS = 4
    LOOKS_AHEAD = 5
    WINDOW_WORDS = 6
    TO = 0
    FROM = 1
    NBYTES = 2
    MOVE_WORDS = 3
    OTHER_WINDOWS = -1
    PAGES_FREED = -2

@cython.final
cdef class FusedKernel:
    cdef readonly Int ahead
    cdef Window window
    cdef Returns returns
    cdef Int batch
    cdef Int length
    cdef bint has_axis
    cdef bint has_wide
    cdef LongTable windows
    cdef Longs offsets
    cdef Bytes records
    cdef Int record_nbytes
    cdef LongTable fields
    cdef LongTable moves
    cdef LongTable row_moves
    # Room to work in: one stretch, as bytes and as what stands there.
    cdef Bytes scratch
    cdef ULongs keys
    cdef LongTable integers
    cdef Longs starts
    cdef Doubles probabilities
    cdef Doubles priorities
    cdef Doubles sums
    cdef Singles singles
    cdef Longs counts
    cdef Longs found
    cdef Bytes known
    cdef bint _fits(self, Items items) noexcept nogil
    cdef Int _sample(self, Items items, Bytes out) noexcept nogil
    cdef Int _add_up(self, Returns returns) noexcept nogil
    cdef Int _resolve(self) noexcept nogil
    cdef void _move(self, LongTable moves, Bytes out) noexcept nogil
