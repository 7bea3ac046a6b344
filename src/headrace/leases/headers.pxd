# The header of a frame, as `frames.py` describes it, and a frame that was read.
from headrace.kernels.kinds cimport Int

cdef extern from *:
    """
    #define HR_HEADER_NBYTES 20
    /* Returns a header and the message behind it. */
    static PyObject *hr_with_header(PyObject *message, long long descriptors, long long payload) {
        Py_ssize_t nbytes = PyBytes_GET_SIZE(message);
        if (descriptors < 0 || descriptors > 0xffffffffLL || payload < 0 || nbytes > 0xffffffffLL) {
            PyErr_SetString(PyExc_OverflowError, "the header of a frame has no place for such numbers");
            return NULL;
        }
        PyObject *frame = PyBytes_FromStringAndSize(NULL, HR_HEADER_NBYTES + nbytes);
        if (frame == NULL) return NULL;
        unsigned char *to = (unsigned char *)PyBytes_AS_STRING(frame);
        memcpy(to, "hrl1", 4);
        for (int i = 0; i < 4; i++) {
            to[4 + i] = (unsigned char)((unsigned long long)nbytes >> (8 * i));
            to[8 + i] = (unsigned char)((unsigned long long)descriptors >> (8 * i));
        }
        for (int i = 0; i < 8; i++) to[12 + i] = (unsigned char)((unsigned long long)payload >> (8 * i));
        memcpy(to + HR_HEADER_NBYTES, PyBytes_AS_STRING(message), (size_t)nbytes);
        return frame;
    }
    /* Reads a header; returns whether it begins as one. A payload that no reader takes is -1. */
    static int hr_read_header(const unsigned char *from, long long *length, long long *count, long long *payload) {
        unsigned long long nbytes = 0;
        if (memcmp(from, "hrl1", 4) != 0) return 0;
        *length = *count = 0;
        for (int i = 3; i >= 0; i--) {
            *length = *length << 8 | from[4 + i];
            *count = *count << 8 | from[8 + i];
        }
        for (int i = 7; i >= 0; i--) nbytes = nbytes << 8 | from[12 + i];
        *payload = nbytes > 0x7fffffffffffffffULL ? -1 : (long long)nbytes;
        return 1;
    }
    /* Returns a tuple of the class `kind`; `tuple.__new__` takes 1,000 instructions for it. */
    static PyObject *hr_triple(PyObject *kind, PyObject *first, PyObject *second, PyObject *third) {
        PyObject *made = ((PyTypeObject *)kind)->tp_alloc((PyTypeObject *)kind, 3);
        if (made == NULL) return NULL;
        Py_INCREF(first);
        Py_INCREF(second);
        Py_INCREF(third);
        PyTuple_SET_ITEM(made, 0, first);
        PyTuple_SET_ITEM(made, 1, second);
        PyTuple_SET_ITEM(made, 2, third);
        return made;
    }
    """
    object triple "hr_triple"(object kind, object first, object second, object third)
    bint read_header "hr_read_header"(
        const unsigned char *begin, Int *length, Int *count, Int *payload
    ) noexcept nogil
    bytes with_header "hr_with_header"(bytes message, Int descriptors, Int payload)
