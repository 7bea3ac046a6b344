from headrace.kernels.kinds cimport *
from headrace.store.commit cimport Lanes
from headrace.store.layout cimport REFERENCES
from headrace.tables.items cimport Index, Items
from headrace.tables.layout cimport *

# See `inserting.insert`; how many went in, how many left, and why it stopped. `shapes` and `priorities` have one entry
# for all, or one each.
cdef (Int, Int, Int) insert_rows(
    Items items, Int first_key, Longs rows, Int count, UInts shapes, Int num_shapes, Doubles priorities, Int num_priorities,
    Int pins,
) noexcept nogil
