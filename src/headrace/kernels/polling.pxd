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
    #if defined(__linux__)
    #include <errno.h>
    #include <sys/epoll.h>
    #define HR_HAS_EPOLL 1
    #define HR_MOST_READY 64
    /* Writes what is ready, 64 pairs at most of a descriptor and its events; returns their number, -errno for an error. */
    static int hr_wait_ready(long long poller, long long milliseconds, long long *found) {
        struct epoll_event ready[HR_MOST_READY];
        int count = epoll_wait((int)poller, ready, HR_MOST_READY, (int)milliseconds);
        if (count < 0) return errno == EINTR ? 0 : -errno;
        for (int i = 0; i < count; i++) {
            found[2 * i] = ready[i].data.fd;
            /* An end or an error is told to readers and writers, as `selectors` does. */
            found[2 * i + 1] = ((ready[i].events & ~(unsigned)EPOLLOUT) ? 1 : 0)
                | ((ready[i].events & ~(unsigned)EPOLLIN) ? 2 : 0);
        }
        return count;
    }
    #else
    #define HR_HAS_EPOLL 0
    #define hr_wait_ready(poller, milliseconds, found) 0
    #endif
    """
    bint looks_readable "hr_is_readable"(Int descriptor) noexcept nogil
    Int waits_readable "hr_waits_readable"(Int descriptor, Int milliseconds) noexcept nogil
    bint HAS_EPOLL "HR_HAS_EPOLL"
    Int wait_ready "hr_wait_ready"(Int poller, Int milliseconds, Int *found) noexcept nogil
