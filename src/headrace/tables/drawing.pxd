from headrace.kernels.hints cimport prefetch
from headrace.kernels.kinds cimport *
from headrace.kernels.numbers cimport Numbers
from headrace.store.layout cimport AHEAD
from headrace.tables.items cimport Index, Items
from headrace.tables.layout cimport *

# One slot by the table's own random numbers: for the remover, and for draws one after the other.
cdef Int choose_one(Items items, Index index, double *chance) noexcept nogil
# Choose and take `count` draws, none of which removes an item, and count them in `items.told`.
cdef void draw_all(Items items, ULongs keys, LongTable integers, Doubles probabilities, Doubles priorities) noexcept nogil
