from libc.math cimport pow

from headrace.kernels.kinds cimport Bytes, Doubles, GivenBytes, Int, Longs, LongTable, UInts, ULongs

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
    static inline void hr_move(void *to, const void *from, Py_ssize_t n) { memcpy(to, from, (size_t)n); }

    #if defined(__SSE2__) || defined(_M_X64)
    #include <emmintrin.h>
    /* gcc makes a jump of a conditional expression, and one that cannot be predicted costs more than all of it. */
    static inline double hr_value_within(double value, double limit) {
        __m128d one = _mm_set_sd(value);
        return _mm_cvtsd_f64(_mm_and_pd(_mm_cmple_sd(one, _mm_set_sd(limit)), one));
    }
    /* The instruction wants places that 16 divides; `count` is a multiple of it. */
    static inline void hr_stream(unsigned char *to, const unsigned char *from, long long count) {
        if ((uintptr_t)to & 15) {
            memcpy(to, from, (size_t)count);
            return;
        }
        for (long long place = 0; place < count;) {
            /* Up to the end of a page of memory. A line of the next one is fetched now, so that its address is looked
               up meanwhile: shared memory has small pages, and each store to a new one would wait for that. */
            long long stop = place + 4096 - ((uintptr_t)(to + place) & 4095);
            if (stop > count) stop = count;
            _mm_prefetch((const char *)(to + stop + 64), _MM_HINT_T0);
            for (; place < stop; place += 16)
                _mm_stream_si128((__m128i *)(to + place), _mm_loadu_si128((const __m128i *)(from + place)));
        }
    }
    #define hr_settle() _mm_sfence()
    #else
    static inline double hr_value_within(double value, double limit) { return value <= limit ? value : 0.0; }
    static inline void hr_stream(unsigned char *to, const unsigned char *from, long long count) {
        memcpy(to, from, (size_t)count);
    }
    #define hr_settle() hr_in_order()
    #endif
    #if defined(_MSC_VER) && !defined(__clang__)
    #define HR_WRITTEN_OUT __forceinline
    #else
    #define HR_WRITTEN_OUT inline __attribute__((always_inline, unused))
    #endif
    /* A copy of a width that the compiler knows is one to four instructions; another is a call. */
    #define HR_BY_WIDTH(width, copy) \
        switch (width) { \
            case 1: copy(1); break; \
            case 2: copy(2); break; \
            case 4: copy(4); break; \
            case 8: copy(8); break; \
            case 12: copy(12); break; \
            case 16: copy(16); break; \
            case 20: copy(20); break; \
            case 24: copy(24); break; \
            case 28: copy(28); break; \
            case 32: copy(32); break; \
            case 40: copy(40); break; \
            case 48: copy(48); break; \
            case 56: copy(56); break; \
            case 64: copy(64); break; \
            default: copy(width); \
        }
    /* Rows at a time: records a power of two apart share few places of the nearest cache, and are gone from it by the
       next field if they are more. */
    #define HR_BLOCK 16
    #define HR_AHEAD 64
    typedef struct { long long offset, width, unit, rows, count, to; } HrField;
    /* What is fetched of a record: from `begin` on, and on to the line that is `far` bytes further. */
    static HR_WRITTEN_OUT void hr_fetch_record(const unsigned char *begin, long long far) {
        hr_prefetch(begin);
        for (; far > 0; far -= 64) hr_prefetch(begin + far);
    }
    /* The first field of a block of rows: fetches the records to come, and notes where those of the block stand. */
    static HR_WRITTEN_OUT void hr_take_first_of(
        unsigned char *__restrict out, const unsigned char *records, long long offset, long long nbytes,
        const long long *__restrict rows, long long count, long long *__restrict places,
        long long fetched, const unsigned char *begin, long long far, size_t width
    ) {
        long long index = 0;
        #define HR_TAKE_ROW \
            places[index] = (rows[index] & ~(rows[index] >> 63)) * nbytes; \
            memcpy(out + index * width, records + offset + places[index], width);
        /* Without the loop over lines, as nearly always, half a nanosecond less a row. */
        if (!far)
            for (; index < count && index < fetched; index++) {
                hr_prefetch(begin + rows[index + HR_AHEAD] * nbytes);
                HR_TAKE_ROW
            }
        for (; index < count && index < fetched; index++) {
            hr_fetch_record(begin + rows[index + HR_AHEAD] * nbytes, far);
            HR_TAKE_ROW
        }
        for (; index < count; index++) {
            HR_TAKE_ROW
        }
    }
    static HR_WRITTEN_OUT void hr_take_of(
        unsigned char *__restrict out, const unsigned char *__restrict from, const long long *__restrict places,
        long long count, size_t width
    ) {
        for (long long index = 0; index < count; index++) memcpy(out + index * width, from + places[index], width);
    }
    static inline void hr_take_fields(
        unsigned char *out, const unsigned char *records, long long nbytes, const long long *rows, const HrField *fields,
        long long num_fields
    ) {
        long long places[HR_BLOCK], total = fields->count, first = nbytes, end = 0;
        for (long long field = 0; field < num_fields; field++) {
            long long stop = fields[field].offset + fields[field].width;
            if (fields[field].offset < first) first = fields[field].offset;
            if (stop > end) end = stop;
        }
        const unsigned char *begin = records + first;
        /* Such records begin where lines of the cache begin, or none of them lies in two. */
        int in_one_line = end - first <= 8 || (nbytes <= 64 && (nbytes & (nbytes - 1)) == 0);
        long long far = in_one_line ? 0 : end - first - 1;
        rows += fields->rows;
        for (long long index = 0; index < HR_AHEAD && index < total; index++)
            hr_fetch_record(begin + rows[index] * nbytes, far);
        for (long long done = 0; done < total; done += HR_BLOCK) {
            long long count = total - done < HR_BLOCK ? total - done : HR_BLOCK;
            long long fetched = total - done - HR_AHEAD;
            #define HR_TAKE_FIRST(width) hr_take_first_of( \
                out + fields->to + done * (width), records, fields->offset, nbytes, rows + done, count, places, \
                fetched, begin, far, width)
            HR_BY_WIDTH(fields->width, HR_TAKE_FIRST)
            for (const HrField *field = fields + 1; field < fields + num_fields; field++) {
                #define HR_TAKE(width) \
                    hr_take_of(out + field->to + done * (width), records + field->offset, places, count, width)
                HR_BY_WIDTH(field->width, HR_TAKE)
            }
        }
    }
    static inline void hr_place(
        unsigned char *to, long long nbytes, const unsigned char *from, long long count, long long width
    ) {
        #define HR_PLACE(width) \
            for (long long index = 0; index < count; index++) memcpy(to + index * nbytes, from + index * (width), width)
        HR_BY_WIDTH(width, HR_PLACE)
    }
    """
    void hr_prefetch(const void *p) noexcept nogil
    void hr_in_order() noexcept nogil
    double hr_value_within(double value, double limit) noexcept nogil
    void hr_move(void *to, const void *source, Py_ssize_t n) noexcept nogil
    void hr_stream(unsigned char *to, const unsigned char *source, Int count) noexcept nogil
    void hr_settle() noexcept nogil
    ctypedef struct HrField:
        pass
    void hr_take_fields(
        unsigned char *out, const unsigned char *records, Int nbytes, const Int *rows, const HrField *fields, Int num_fields
    ) noexcept nogil
    void hr_place(unsigned char *to, Int nbytes, const unsigned char *source, Int count, Int width) noexcept nogil

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

cdef inline void stream(Bytes target, Int to, GivenBytes source, Int begin, Int count) noexcept nogil:
    hr_stream(&target[to], &source[begin], count)

cdef inline void store_fence() noexcept nogil:
    hr_settle()

cdef inline void take_fields(
    Bytes records, Int nbytes, Longs rows, LongTable table, Int first, Int stop, Bytes out
) noexcept nogil:
    hr_take_fields(&out[0], &records[0], nbytes, &rows[0], <const HrField *>&table[first, 0], stop - first)

cdef inline void place(
    Bytes values, Int begin, Int width, Int count, Bytes records, Int to, Int nbytes
) noexcept nogil:
    hr_place(&records[to], nbytes, &values[begin], count, width)

cdef inline void in_order() noexcept nogil:
    hr_in_order()

cdef inline double value_within(double value, double limit) noexcept nogil:
    return hr_value_within(value, limit)

cdef inline double power(double base, double exponent) noexcept nogil:
    return pow(base, exponent)
