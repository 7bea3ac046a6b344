cimport cython

from headrace.kernels.kinds cimport *

cdef extern from *:
    """
    #include <numpy/arrayobject.h>
    static PyObject *hr_array_over(
        PyObject *buffer, PyObject *kind, Py_ssize_t begin, int axes, const long long *lengths
    ) {
        npy_intp shape[NPY_MAXDIMS];
        for (int axis = 0; axis < axes; axis++) shape[axis] = (npy_intp)lengths[axis];
        Py_INCREF(kind);  /* NumPy takes this reference, and below that to the buffer. */
        PyObject *array = PyArray_NewFromDescr(
            &PyArray_Type, (PyArray_Descr *)kind, axes, shape, NULL,
            (char *)PyArray_DATA((PyArrayObject *)buffer) + begin, NPY_ARRAY_CARRAY, NULL
        );
        if (array == NULL) return NULL;
        Py_INCREF(buffer);
        if (PyArray_SetBaseObject((PyArrayObject *)array, buffer) < 0) {
            Py_DECREF(array);
            return NULL;
        }
        return array;
    }
    """
    object hr_array_over(object buffer, object kind, Py_ssize_t begin, int axes, const long long *lengths)

cdef inline object array_over(object buffer, object kind, Int begin, Longs shapes, Int first, Int axes):
    return hr_array_over(buffer, kind, begin, <int>axes, &shapes[first])

@cython.final
cdef class Fields:
    cdef list names
    cdef list dtypes
    cdef Int count
    # Of each field: where it begins, and its axes; their lengths stand one after another in `shapes`.
    cdef Longs begins
    cdef Longs axes
    cdef Longs shapes
