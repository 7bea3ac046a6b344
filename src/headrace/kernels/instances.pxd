# Asks for the type of a value, as `instances.py` does.
cdef extern from *:
    """
    #define hr_is_of(value, kind) PyObject_TypeCheck((value), (PyTypeObject *)(kind))
    """
    bint is_of "hr_is_of"(object value, object kind) noexcept
