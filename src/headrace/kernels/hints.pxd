from libc.math cimport pow

from headrace.kernels.kinds cimport Bool, Bytes, Doubles, Float, GivenBytes, Int, Longs, UInts, ULongs

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #if defined(_MSC_VER) && !defined(__clang__)
    #include <intrin.h>
    #if defined(_M_X64) || defined(_M_IX86)
    #define hr_prefetch(p) _mm_prefetch((const char *)(p), _MM_HINT_T1)
    #else
    #define hr_prefetch(p) __prefetch((const void *)(p))
    #endif
    #define hr_in_order() _ReadWriteBarrier()
    #else
    /* The empty asm: gcc takes a function that does no more for one without effect, and drops its calls. */
    static inline void hr_prefetch(const void *p) { __builtin_prefetch(p, 0, 2); __asm__ volatile(""); }
    #define hr_in_order() __atomic_signal_fence(__ATOMIC_SEQ_CST)
    #endif
    /* By a mask: gcc makes a jump of a conditional expression, and one that cannot be predicted costs more than all of it. */
    static inline double hr_value_if(int condition, double value) {
        uint64_t bits;
        memcpy(&bits, &value, 8);
        bits &= -(uint64_t)(condition != 0);
        memcpy(&value, &bits, 8);
        return value;
    }
    static inline void hr_move(void *to, const void *from, Py_ssize_t n) { memcpy(to, from, (size_t)n); }
    """
    void hr_prefetch(const void *p) noexcept nogil
    void hr_in_order() noexcept nogil
    double hr_value_if(bint condition, double value) noexcept nogil
    void hr_move(void *to, const void *source, Py_ssize_t n) noexcept nogil

# Any place is fine: nothing is read.
ctypedef fused AnyArray:
    Doubles
    Longs
    UInts
    ULongs
    Bytes

cdef inline void prefetch(AnyArray array, Int place) noexcept nogil:
    hr_prefetch(&array[place])

cdef inline void move(Bytes target, Int to, GivenBytes source, Int begin, Int count) noexcept nogil:
    hr_move(&target[to], &source[begin], count)

cdef inline void in_order() noexcept nogil:
    hr_in_order()

cdef inline double value_if(bint condition, double value) noexcept nogil:
    return hr_value_if(condition, value)

cdef inline double power(double base, double exponent) noexcept nogil:
    return pow(base, exponent)
