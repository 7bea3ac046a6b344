# Looks at descriptors.
from headrace.kernels.kinds cimport Int

cdef extern from *:
    """
    #if defined(_WIN32)
    /* Where this is not known, a read that does not wait tells it. */
    #define hr_is_readable(descriptor) 1
    #define hr_waits_readable(descriptor, milliseconds) 1
    #else
    #include <poll.h>
    static inline int hr_is_readable(long long descriptor) {
        struct pollfd looked;
        looked.fd = (int)descriptor;
        looked.events = POLLIN;
        looked.revents = 0;
        return poll(&looked, 1, 0) != 0;
    }
    /* Returns -1 if a signal came. */
    static inline long long hr_waits_readable(long long descriptor, long long milliseconds) {
        struct pollfd looked;
        looked.fd = (int)descriptor;
        looked.events = POLLIN;
        looked.revents = 0;
        return poll(&looked, 1, (int)milliseconds);
    }
    #endif
    """
    bint looks_readable "hr_is_readable"(Int descriptor) noexcept nogil
    Int waits_readable "hr_waits_readable"(Int descriptor, Int milliseconds) noexcept nogil
