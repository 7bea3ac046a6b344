cimport cython

from headrace.kernels.hints cimport prefetch
from headrace.kernels.kinds cimport *
from headrace.store.layout cimport AHEAD, FINAL, LANES
from headrace.store.window cimport Window

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #define HR_READ(type) { type number; memcpy(&number, at, sizeof number); return (double)number; }
    static inline double hr_number_at(const unsigned char *at, int kind) {
        switch (kind) {
            case 0: HR_READ(float)
            case 1: HR_READ(double)
            case 2: HR_READ(uint8_t)
            case 3: HR_READ(int8_t)
            case 4: HR_READ(uint16_t)
            case 5: HR_READ(int16_t)
            case 6: HR_READ(uint32_t)
            case 7: HR_READ(int32_t)
            case 8: HR_READ(uint64_t)
            default: HR_READ(int64_t)
        }
    }
    #undef HR_READ
    """
    double hr_number_at(const unsigned char *at, int kind) noexcept nogil

cdef Int _ASKED_STEPS

# A number of this kind, by its place among `returns.KINDS`, that stands at a byte of `records`.
cdef inline double number_at(Bytes records, Int place, Int kind) noexcept nogil:
    return hr_number_at(&records[place], <int>kind)

@cython.final
cdef class Returns:
    cdef readonly Int n_step
    cdef double gamma
    cdef Window window
    cdef Bytes records
    cdef Int nbytes
    cdef Int reward
    cdef Int reward_kind
    cdef Int terminated
    cdef Int terminated_kind
    cdef Int add_up_into(self, Longs rows, Int count, Doubles sums, Longs counts, Longs found, Int last) noexcept nogil
    cdef void _ask_for(self, Int row) noexcept nogil
    cdef double _reward_of(self, Int row) noexcept nogil
    cdef bint _ends(self, Int row) noexcept nogil
