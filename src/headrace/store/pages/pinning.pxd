cimport cython

from headrace.kernels.hints cimport in_order
from headrace.kernels.kinds cimport *
from headrace.store.layout cimport *
from headrace.store.window cimport Window

@cython.final
cdef class Pins:
    cdef readonly Window window
    cpdef void pin_page(self, Int page, Int change) noexcept nogil
    cdef bint pin_in_page(self, Int row, Int most, Int change) noexcept nogil
    cpdef void pin_window(self, Int row, Int count, Int change) noexcept nogil
    cpdef void pin_stream(self, Int row, Int count, Int change) noexcept nogil
    cpdef void pin_rows(self, Int row, Int real, Int lookahead, Int change) noexcept nogil
    cdef Int kept_rows(self, Int row, Int real, Int lookahead) noexcept nogil
    cpdef void link_final(self, Int last, Int final) noexcept nogil
    cdef void note_link(self, Int last, Int final) noexcept nogil
    cpdef void take_freed(self) noexcept nogil
    cdef void _take_apart(self, Int page) noexcept nogil
    cdef void _drop_links(self, Int page) noexcept nogil
