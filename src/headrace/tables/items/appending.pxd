from headrace.kernels.kinds cimport *
from headrace.store.commit cimport Lanes
from headrace.tables.windows.buffer cimport WindowBuffer
from headrace.tables.items.inserting cimport insert_rows
from headrace.tables.items.items cimport Items
from headrace.tables.items.layout cimport WINDOW_WORDS

cpdef void commit_ends(
    Lanes lanes, WindowBuffer buffer, GivenBytes final, GivenBytes idle, GivenLongs ended, Int first_final,
) except *
cdef (Int, Int) _insert_windows(Items items, WindowBuffer buffer, Int first_key, Int num_shapes) noexcept nogil
