from headrace.kernels.kinds cimport Int

cdef class Unsent:
    cdef object _pieces
    cdef readonly Int nbytes
    cpdef object keep(self, object pieces, object descriptors, Int sent)
    cpdef tuple next_pieces(self)
    cpdef object drop(self, Int sent)
