cimport cython

from headrace.kernels.kinds cimport *
from headrace.store.layout cimport EDGE, KNOWN, UNKNOWN
