# Numbers that several threads change without the interpreter lock, and what such threads need to wait.
from headrace.kernels.kinds cimport Int

cdef extern from *:
    """
    #if defined(_WIN32)
    #define WIN32_LEAN_AND_MEAN
    #define NOMINMAX
    #include <windows.h>
    #define hr_let_others_run() ((void)SwitchToThread())
    static inline long long hr_nanoseconds(void) {
        LARGE_INTEGER count, per_second;
        QueryPerformanceCounter(&count);
        QueryPerformanceFrequency(&per_second);
        return (long long)((double)count.QuadPart * 1e9 / (double)per_second.QuadPart);
    }
    #else
    #include <sched.h>
    #include <time.h>
    #define hr_let_others_run() ((void)sched_yield())
    static inline long long hr_nanoseconds(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (long long)now.tv_sec * 1000000000 + now.tv_nsec;
    }
    #endif
    #if defined(_MSC_VER) && !defined(__clang__)
    #include <intrin.h>
    #define hr_load(p) _InterlockedExchangeAdd64((p), 0)
    #define hr_store(p, n) ((void)_InterlockedExchange64((p), (n)))
    #define hr_add(p, n) ((void)_InterlockedExchangeAdd64((p), (n)))
    #else
    #define hr_load(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
    #define hr_store(p, n) __atomic_store_n((p), (n), __ATOMIC_RELEASE)
    #define hr_add(p, n) ((void)__atomic_fetch_add((p), (n), __ATOMIC_ACQ_REL))
    #endif
    """
    void let_others_run "hr_let_others_run"() noexcept nogil
    Int nanoseconds "hr_nanoseconds"() noexcept nogil
    Int load "hr_load"(Int *p) noexcept nogil
    void store "hr_store"(Int *p, Int n) noexcept nogil
    void add "hr_add"(Int *p, Int n) noexcept nogil
