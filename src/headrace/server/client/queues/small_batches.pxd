cimport cython

from headrace.kernels.kinds cimport Int, Longs

cdef extern from *:
    """
    #include <numpy/arrayobject.h>
    /* Returns an array over bytes of `owner`, aligned as its numbers need it. */
    static PyObject *hr_array_at(
        PyObject *owner, char *data, PyObject *kind, long long rows, long long axes, const long long *lengths
    ) {
        npy_intp shape[NPY_MAXDIMS];
        shape[0] = (npy_intp)rows;
        for (int axis = 0; axis < axes; axis++) shape[axis + 1] = (npy_intp)lengths[axis];
        Py_INCREF(kind);  /* NumPy takes this reference, and below that to the owner. */
        PyObject *array = PyArray_NewFromDescr(
            &PyArray_Type, (PyArray_Descr *)kind, (int)axes + 1, shape, NULL, data, NPY_ARRAY_CARRAY, NULL
        );
        if (array == NULL) return NULL;
        Py_INCREF(owner);
        if (PyArray_SetBaseObject((PyArrayObject *)array, owner) < 0) {
            Py_DECREF(array);
            return NULL;
        }
        return array;
    }
    """
    object hr_array_at(object owner, char *data, object kind, Int rows, Int axes, const long long *lengths)

cdef inline object array_at(
    object owner, char *begin, object kind, Int rows, Int axes, Longs lengths, Int first
):
    return hr_array_at(owner, begin, kind, rows, axes, &lengths[first])

# See `small_batches.py`.
@cython.final
cdef class SmallBatches:
    cdef Int _nbytes
    cdef list _shapes
    cdef list _dtypes
    # Of each leaf: bytes of one, bytes to which its numbers are aligned, and axes. Their lengths stand one after another.
    cdef Longs _leaf_nbytes
    cdef Longs _alignments
    cdef Longs _axes
    cdef Longs _lengths
    cpdef list arrays(self, Int rows, bytearray data)
    cdef object _array(self, Int leaf, Int rows, bytearray data, Int offset, Int first)
