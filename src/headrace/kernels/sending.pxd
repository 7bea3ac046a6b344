# Sends bytes over a socket without waiting.
from headrace.kernels.kinds cimport Int

cdef extern from *:
    """
    #if defined(_WIN32)
    /* Not sent: the caller then sends them as Python does. */
    #define hr_send_pieces(descriptor, head, head_nbytes, rest, rest_nbytes) (-1LL)
    #else
    #include <string.h>
    #include <sys/socket.h>
    #include <sys/uio.h>
    #if !defined(MSG_NOSIGNAL)
    #define MSG_NOSIGNAL 0  /* Python ignores SIGPIPE. */
    #endif
    /* Sends two pieces as one; returns the number of bytes that the system has taken, or -1. */
    static inline long long hr_send_pieces(
        long long descriptor, const void *head, long long head_nbytes, const void *rest, long long rest_nbytes
    ) {
        struct iovec pieces[2];
        struct msghdr message;
        if (rest_nbytes == 0) return send((int)descriptor, head, (size_t)head_nbytes, MSG_DONTWAIT | MSG_NOSIGNAL);
        pieces[0].iov_base = (void *)head;
        pieces[0].iov_len = (size_t)head_nbytes;
        pieces[1].iov_base = (void *)rest;
        pieces[1].iov_len = (size_t)rest_nbytes;
        memset(&message, 0, sizeof message);
        message.msg_iov = pieces;
        message.msg_iovlen = 2;
        return sendmsg((int)descriptor, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    #endif
    """
    Int send_pieces "hr_send_pieces"(
        Int descriptor, const void *head, Int head_nbytes, const void *rest, Int rest_nbytes
    ) noexcept nogil
