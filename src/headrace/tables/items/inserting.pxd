from headrace.kernels.kinds cimport *
from headrace.tables.items.drawing cimport choose_one
from headrace.tables.items.items cimport Items
from headrace.tables.items.layout cimport *

cdef (Int, Int) insert_rows(
    Items items, Int first_key, ULongs keys, Longs rows, UInts shapes, Doubles priorities
) noexcept nogil
cdef (Int, Int) _insert_each(
    Items items, Int first_key, ULongs keys, Longs rows, UInts shapes, Doubles priorities
) noexcept nogil
cdef void _let_leave(Items items, Int place) noexcept nogil
cdef Int _obstacle(Items items, UInts shapes, Int shape, double priority) noexcept nogil
cdef bint _is_run(Items items, Int count, UInts shapes, Doubles priorities, Int leaving) noexcept nogil
cdef void _let_run_leave(Items items, Int leaving) noexcept nogil
cdef void _append_run(Items items, Int first_key, Longs rows) noexcept nogil
cdef Int _append(Items items, Int key, Int row, UInts shapes, Int shape, double priority) noexcept nogil
