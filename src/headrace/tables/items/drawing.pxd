from headrace.kernels.hints cimport prefetch
from headrace.kernels.kinds cimport *
from headrace.tables.items.items cimport Index, Items
from headrace.tables.items.layout cimport *
from headrace.tables.indexes.sum_tree cimport SumTree

cdef double choose_one(Items items, Index index, Int to) noexcept nogil
cdef Int _choose_evenly(Items items, Int begin, Int count) noexcept nogil
# Choose and take as many draws as there are keys, none of which removes an item, and count them in `items.counters`.
cdef void draw_all(Items items, ULongs keys, LongTable integers, Doubles probabilities, Doubles priorities) noexcept nogil
cdef Int _choose_many(Items items, Int begin, Int end, LongTable integers, Doubles probabilities) noexcept nogil
cdef void _choose_by_priority(
    Items items, SumTree tree, Int begin, Int end, LongTable integers, Doubles probabilities
) noexcept nogil
cdef Int _end_slot(Items items, Index index) noexcept nogil
cdef void _take(Items items, Int begin, Int end, ULongs keys, LongTable integers, Doubles priorities) noexcept nogil
cdef Int _count(Items items, Int begin, Int end, ULongs keys, LongTable integers) noexcept nogil
