# Numbers that several threads change without the interpreter lock.
from headrace.kernels.kinds cimport Int

cdef extern from *:
    """
    #if defined(_WIN32)
    #define WIN32_LEAN_AND_MEAN
    #define NOMINMAX
    #include <windows.h>
    #define hr_let_others_run() ((void)SwitchToThread())
    #else
    #include <sched.h>
    #define hr_let_others_run() ((void)sched_yield())
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
    Int load "hr_load"(Int *p) noexcept nogil
    void store "hr_store"(Int *p, Int n) noexcept nogil
    void add "hr_add"(Int *p, Int n) noexcept nogil
