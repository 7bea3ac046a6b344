from headrace.kernels.kinds cimport *
from headrace.store.commit cimport Lanes
from headrace.tables.cutting cimport Cutter
from headrace.tables.inserting cimport insert_rows
from headrace.tables.items cimport Items

cpdef void commit_seam_and_cut(
    Lanes lanes, Cutter cutter, GivenBytes final, GivenBytes idle, GivenLongs ended, Int first_final,
) except *
cdef (Int, Int) _insert_windows(Items items, Cutter cutter, Int first_key, Int num_shapes) noexcept nogil
