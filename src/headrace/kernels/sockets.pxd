# Calls of stream sockets that do not wait.
from headrace.kernels.kinds cimport Int

cdef extern from *:
    """
    #if defined(_WIN32)
    #define HR_HAS_SOCKETS 0
    #define hr_receive_now(descriptor, descriptors, count) (Py_INCREF(Py_None), Py_None)
    #define hr_send_now(descriptor, data, nbytes) (-1)
    /* Not sent: the caller then sends them as Python does. */
    #define hr_send_pieces(descriptor, head, head_nbytes, rest, rest_nbytes) (-1LL)
    #else
    #include <errno.h>
    #include <fcntl.h>
    #include <string.h>
    #include <sys/socket.h>
    #include <sys/uio.h>
    #define HR_HAS_SOCKETS 1
    #define HR_SMALL (1 << 14)
    #define HR_PASSED 4
    #ifdef MSG_NOSIGNAL
    #define HR_SEND_FLAGS (MSG_DONTWAIT | MSG_NOSIGNAL)
    #else
    #define HR_SEND_FLAGS MSG_DONTWAIT
    #endif
    #ifdef MSG_CMSG_CLOEXEC
    #define HR_RECEIVE_FLAGS (MSG_DONTWAIT | MSG_CMSG_CLOEXEC)
    #else
    #define HR_RECEIVE_FLAGS MSG_DONTWAIT
    #endif
    /* Returns at most 16 KiB that have arrived, None if nothing has; `descriptors` gets the `count` that came along. */
    static inline PyObject *hr_receive_now(long long descriptor, int *descriptors, int *count) {
        char data[HR_SMALL];
        union { struct cmsghdr head; char bytes[CMSG_SPACE(HR_PASSED * sizeof(int))]; } ancillary;
        struct iovec piece = { data, sizeof(data) };
        struct msghdr message;
        memset(&message, 0, sizeof(message));
        message.msg_iov = &piece;
        message.msg_iovlen = 1;
        message.msg_control = ancillary.bytes;
        message.msg_controllen = sizeof(ancillary.bytes);
        *count = 0;
        /* It takes less time than to give the interpreter lock away and to ask for it again. */
        ssize_t found = recvmsg((int)descriptor, &message, HR_RECEIVE_FLAGS);
        if (found < 0) {
            if (errno == EAGAIN || errno == EWOULDBLOCK) Py_RETURN_NONE;
            return PyErr_SetFromErrno(PyExc_OSError);
        }
        for (struct cmsghdr *each = CMSG_FIRSTHDR(&message); each; each = CMSG_NXTHDR(&message, each)) {
            if (each->cmsg_level != SOL_SOCKET || each->cmsg_type != SCM_RIGHTS) continue;
            int passed = (int)((each->cmsg_len - CMSG_LEN(0)) / sizeof(int));
            for (int i = 0; i < passed && *count < HR_PASSED; i++) {
                memcpy(&descriptors[*count], CMSG_DATA(each) + i * sizeof(int), sizeof(int));
    #ifndef MSG_CMSG_CLOEXEC
                fcntl(descriptors[*count], F_SETFD, FD_CLOEXEC);
    #endif
                (*count)++;
            }
        }
        return PyBytes_FromStringAndSize(data, found);
    }
    static inline long long hr_send_now(long long descriptor, const unsigned char *data, long long nbytes) {
        ssize_t sent = send((int)descriptor, data, (size_t)nbytes, HR_SEND_FLAGS);
        return sent < 0 ? -errno : (long long)sent;
    }
    /* Sends two pieces as one; returns the number of bytes that the system has taken, or -1. */
    static inline long long hr_send_pieces(
        long long descriptor, const void *head, long long head_nbytes, const void *rest, long long rest_nbytes
    ) {
        struct iovec pieces[2];
        struct msghdr message;
        if (rest_nbytes == 0) return send((int)descriptor, head, (size_t)head_nbytes, HR_SEND_FLAGS);
        pieces[0].iov_base = (void *)head;
        pieces[0].iov_len = (size_t)head_nbytes;
        pieces[1].iov_base = (void *)rest;
        pieces[1].iov_len = (size_t)rest_nbytes;
        memset(&message, 0, sizeof message);
        message.msg_iov = pieces;
        message.msg_iovlen = 2;
        return sendmsg((int)descriptor, &message, HR_SEND_FLAGS);
    }
    #endif
    """
    bint HAS_SOCKETS "HR_HAS_SOCKETS"
    object receive_now "hr_receive_now"(Int descriptor, int *descriptors, int *count)
    Int send_now "hr_send_now"(Int descriptor, const unsigned char *data, Int nbytes) noexcept nogil
    Int send_pieces "hr_send_pieces"(
        Int descriptor, const void *head, Int head_nbytes, const void *rest, Int rest_nbytes
    ) noexcept nogil
